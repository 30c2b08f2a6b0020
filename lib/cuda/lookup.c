/*
 * cuGetProcAddress. The driver decides by name, CUDA version and flags which version of a function
 * a program gets. If the answer is a function that this library hooks, it is replaced by ours. The
 * driver's pointer tells which function it is, so we need not know the driver's rules.
 *
 * The name decides in two cases: if the driver has one function under several names, so that the
 * pointer is not unique, and if it exports the pointer under no name. A pointer that is exported
 * under a name that we do not know, such as that of a newer version, is passed on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "cuda/driver.h"
#include "cuda/lock.h"

enum variant { VARIANT_none, VARIANT_ptsz, VARIANT_ptds };

/* One name of the driver. */
struct name {
    const char *base; /* as cuGetProcAddress is asked for it */
    uint16_t since;   /* CUDA version / 10 */
    uint16_t variant;
    const struct dv_forward *forward;
    void *ours;
};

#define CUDA_FN(name, base, since, variant, kind, hooked)                                          \
    DV_HIDDEN extern struct dv_forward dv_forward_##name;
#include "abi/generated/cuda_names.inc"
#undef CUDA_FN

/* Holds function addresses as object pointers. POSIX allows that, ISO C has no such constant. */
__extension__ static const struct name names[] = {
#define CUDA_FN(name, base, since, variant, kind, hooked)                                          \
    {#base, (since) / 10, VARIANT_##variant, &dv_forward_##name, (void *)name},
#include "abi/generated/cuda_names.inc"
#undef CUDA_FN
};
#define NAMES (sizeof names / sizeof names[0])

DV_HIDDEN extern const char forwards_begin[], forwards_end[]; /* names.c */

/* By the driver's pointer: the names of ours behind it. */
#define SLOTS 1024u /* power of two, well above the number of hooked names */
struct slot {
    void *real;
    uint16_t name;
    uint16_t count; /* names that the driver has for this pointer, hooked or not; 0: empty */
};
static struct slot slots[SLOTS];
static bool built;
static lock building;

static bool is_hooked(const struct name *name) {
    const char *ours = name->ours;
    return ours < forwards_begin || ours >= forwards_end;
}

static struct slot *slot_of(const void *real) {
    unsigned at = (unsigned)((uintptr_t)real * 0x9e3779b97f4a7c15u >> 54);
    while (slots[at].count != 0 && slots[at].real != real) {
        at = (at + 1) % SLOTS;
    }
    return &slots[at];
}

static void build(void) {
    for (size_t i = 0; i < NAMES; i++) {
        void *real = names[i].forward->real;
        if (is_hooked(&names[i]) && real != (void *)(uintptr_t)dv_missing) {
            struct slot *slot = slot_of(real);
            if (slot->count == 0) {
                *slot = (struct slot){.real = real, .name = (uint16_t)i, .count = 1};
            }
        }
    }
    for (size_t i = 0; i < NAMES; i++) {
        struct slot *slot = slot_of(names[i].forward->real);
        if (slot->count != 0 && &names[i] != &names[slot->name]) {
            slot->count++;
        }
    }
}

static const struct slot *find(const void *real) {
    if (!__atomic_load_n(&built, __ATOMIC_ACQUIRE)) {
        lock_take(&building);
        if (!built) {
            build();
            __atomic_store_n(&built, true, __ATOMIC_RELEASE);
        }
        lock_give(&building);
    }
    const struct slot *slot = slot_of(real);
    return slot->count != 0 ? slot : NULL;
}

/* The newest version of a function that a program of this CUDA version may have; the variant for a
 * default stream per thread only if asked for. With `real`, only names that the driver has for it.
 */
static const struct name *by_name(const char *base, int version, cuuint64_t flags,
                                  const void *real) {
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const struct name *best = NULL;
    for (size_t i = 0; i < NAMES; i++) {
        const struct name *n = &names[i];
        if (n->since * 10 > version || strcmp(n->base, base) != 0 ||
            (real != NULL && n->forward->real != real) ||
            (n->variant != VARIANT_none && !per_thread)) {
            continue;
        }
        if (best == NULL || (n->variant != VARIANT_none) > (best->variant != VARIANT_none) ||
            ((n->variant != VARIANT_none) == (best->variant != VARIANT_none) &&
             n->since > best->since)) {
            best = n;
        }
    }
    return best;
}

/* Replaces the driver's answer by our function if we hook it. */
static void replace(const char *base, void **answer, int version, cuuint64_t flags) {
    const struct slot *slot = find(*answer);
    if (slot != NULL && slot->count == 1) {
        *answer = names[slot->name].ours;
        return;
    }
    Dl_info exported;
    if (slot == NULL && dladdr(*answer, &exported) != 0 && exported.dli_saddr == *answer) {
        return;
    }
    const struct name *name = by_name(base, version, flags, slot != NULL ? *answer : NULL);
    if (name != NULL && is_hooked(name)) {
        *answer = name->ours;
    }
}

CUresult cuGetProcAddress(const char *base, void **answer, int version, cuuint64_t flags) {
    CUresult result = DV_CALL(cuGetProcAddress, base, answer, version, flags);
    if (result == CUDA_SUCCESS && !DV_INNER() && base != NULL && answer != NULL &&
        *answer != NULL) {
        replace(base, answer, version, flags);
    }
    return result;
}

CUresult cuGetProcAddress_v2(const char *base, void **answer, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    CUresult result = DV_CALL(cuGetProcAddress_v2, base, answer, version, flags, status);
    if (result == CUDA_SUCCESS && !DV_INNER() && base != NULL && answer != NULL &&
        *answer != NULL) {
        replace(base, answer, version, flags);
    }
    return result;
}
