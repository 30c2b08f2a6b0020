/*
 * The command `aliases`: names of which the driver has one and the same function. Our library
 * recognises what cuGetProcAddress returned by the pointer; where two names that it treats
 * differently share one, it must decide by name, version and flags instead. It is run natively.
 */
#include "probe.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const names[] = {
#define CUDA_FN(symbol, ...) #symbol,
#include "abi/generated/cuda_names.inc"
#undef CUDA_FN
};
enum { NAMES = sizeof names / sizeof names[0], SHOWN = 12 };

struct symbol {
    void *address;
    unsigned name;
};

static int by_address(const void *a, const void *b) {
    const struct symbol *left = a, *right = b;
    uintptr_t l = (uintptr_t)left->address, r = (uintptr_t)right->address;
    if (l != r) {
        return l > r ? 1 : -1;
    }
    return (left->name > right->name) - (left->name < right->name);
}

/* Functions that cuGetProcAddress gives and that no exported name has. */
static unsigned count_unlisted(const struct symbol *symbols, size_t count) {
    unsigned unlisted = 0;
    int version = 0;
    (void)cuda.cuInit(0);
    if (cuda.cuGetProcAddress_v2 == NULL || cuda.cuDriverGetVersion(&version) != CUDA_SUCCESS) {
        return 0;
    }
    for (unsigned i = 0; i < NAMES; i++) {
        for (unsigned flags = 0; flags <= CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
             flags += CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) {
            CUdriverProcAddressQueryResult found;
            struct symbol wanted = {NULL, 0};
            CUresult result =
                cuda.cuGetProcAddress_v2(names[i], &wanted.address, version, flags, &found);
            size_t at = 0;
            while (at < count && symbols[at].address != wanted.address) {
                at++;
            }
            unlisted += result == CUDA_SUCCESS && wanted.address != NULL && at == count;
        }
    }
    return unlisted;
}

int command_aliases(void) {
    static struct symbol symbols[NAMES];
    size_t count = 0;
    if (!open_cuda()) {
        return 3;
    }
    for (unsigned i = 0; i < NAMES; i++) {
        void *address = dlsym(cuda.library, names[i]);
        if (address != NULL) {
            symbols[count++] = (struct symbol){address, i};
        }
    }
    qsort(symbols, count, sizeof symbols[0], by_address);
    printf("{\"command\":\"aliases\",\"named\":%d,\"present\":%zu,\"groups\":[", NAMES, count);
    for (size_t i = 0, groups = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && symbols[end].address == symbols[i].address; end++) {
        }
        if (end - i < 2) {
            continue;
        }
        printf("%s[", groups++ > 0 ? "," : "");
        for (size_t k = i; k < end && k < i + SHOWN; k++) {
            printf("%s\"%s\"", k > i ? "," : "", names[symbols[k].name]);
        }
        printf("]");
    }
    printf("],\"unlisted\":%u}\n", count_unlisted(symbols, count));
    return 0;
}
