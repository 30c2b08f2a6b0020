/* cuGetProcAddress over simgpu, for every name, version and meaning of the default stream: the
 * driver's choice, and ours exactly where we stand in front of what it chose. */
#define _GNU_SOURCE
#include "cuda/test/sim.h"

#include <string.h>

static struct setting s;

typedef CUresult (*lookup_fn)(const char *, void **, int, cuuint64_t,
                              CUdriverProcAddressQueryResult *);

/* Functions that tell of memory or find others; those that must have a hook are described so. */
static bool tells(const char *name) {
    static const char *const starts[] = {"cuMemMap",
                                         "cuMemUnmap",
                                         "cuGraphInstantiate",
                                         "cuMemGetInfo",
                                         "cuDeviceTotalMem",
                                         "cuDeviceGetCount",
                                         "cuCtxCreate",
                                         "cuInit",
                                         "cuDevicePrimaryCtxRetain",
                                         "cuIpcGetMemHandle",
                                         "cuIpcOpenMemHandle",
                                         "cuGetProcAddress"};
    for (unsigned i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        if (strncmp(name, starts[i], strlen(starts[i])) == 0) {
            return true;
        }
    }
    return false;
}

struct name {
    const char *name, *base, *hooked;
};
static const struct name names[] = {
#define CUDA_FN(name, base, since, variant, kind, hooked) {#name, #base, #hooked},
#include "abi/generated/cuda_names.inc"
#undef CUDA_FN
};
#define NAMES (sizeof names / sizeof names[0])

static unsigned replaced, passed;

/* The driver has one function for all names that it does not implement: of several names that its
 * answer may stand for, ours must be one, and none that counts may have been passed over. */
static void check_replaced(const char *base, const void *want, const void *got) {
    bool ours = false, must = false;
    for (unsigned i = 0; i < NAMES; i++) {
        if (strcmp(names[i].base, base) == 0 && setting_real(&s, names[i].name) == want) {
            ours = ours || setting_function(&s, names[i].name) == got;
            must = must || strcmp(names[i].hooked, "must") == 0 || tells(names[i].name);
        }
    }
    CHECK(got == want ? !must : ours);
    replaced += got != want;
    passed += got == want;
}

static void check_answer(const char *base, int version, cuuint64_t flags, lookup_fn real) {
    void *want = NULL, *got = NULL;
    CUdriverProcAddressQueryResult want_status, got_status;
    CUresult result = real(base, &want, version, flags, &want_status);
    CHECK_EQUAL(CUDA(&s, cuGetProcAddress_v2)(base, &got, version, flags, &got_status), result);
    if (result != CUDA_SUCCESS || want == NULL) {
        CHECK(got == want);
        return;
    }
    CHECK_EQUAL(got_status, want_status);
    check_replaced(base, want, got);
}

int main(void) {
    static const int versions[] = {2000, 3020, 4000, 8000, 11030, 11040, 12000, 12040};
    sim_make(&s, 1, 64 * MIB);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    __extension__ lookup_fn real = (lookup_fn)setting_real(&s, "cuGetProcAddress_v2");
    for (unsigned i = 0; i < NAMES; i++) {
        for (unsigned v = 0; v < sizeof versions / sizeof versions[0]; v++) {
            for (cuuint64_t flags = 0; flags <= 2; flags++) {
                check_answer(names[i].base, versions[v], flags, real);
            }
        }
    }
    CHECK(replaced > 1000 && passed > 1000);
    return 0;
}
