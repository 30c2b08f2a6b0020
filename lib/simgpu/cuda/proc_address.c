/* cuGetProcAddress: the newest variant of a function that the asked-for version of CUDA had. */
#include "simgpu/cuda/driver.h"

#include <stdio.h>
#include <string.h>

enum variant { VARIANT_none, VARIANT_ptsz, VARIANT_ptds };

struct entry {
    const char *name; /* as exported */
    const char *base; /* as asked for */
    int since;
    enum variant variant;
    void (*function)(void);
};

#define CUDA_FN(name, base, since, variant, kind, hooked)                                          \
    {#name, #base, since, VARIANT_##variant, (void (*)(void))name},
#pragma GCC diagnostic ignored "-Wcast-function-type"
static const struct entry entries[] = {
#include "abi/generated/cuda_names.inc"
};
#undef CUDA_FN
#define ENTRIES (sizeof entries / sizeof *entries)
/* Both ways to say which stream NULL means may be given at once. */
#define FLAGS (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)

static bool better(const struct entry *entry, const struct entry *best) {
    return !best || entry->since > best->since ||
           (entry->since == best->since && strcmp(entry->name, best->name) > 0);
}

/* A function that has variants for the thread's own stream is found among those alone when they are asked
 * for, also where the version asked for had none yet. */
static CUdriverProcAddressQueryResult find(const char *symbol, int version, int newest,
                                           cuuint64_t flags, void **function) {
    const struct entry *best[2] = {NULL, NULL};
    bool known[2] = {false, false};

    for (size_t i = 0; i < ENTRIES; i++) {
        const struct entry *entry = &entries[i];
        bool own = entry->variant != VARIANT_none;
        if (entry->since > newest || strcmp(entry->base, symbol) != 0) {
            continue;
        }
        known[own] = true;
        if ((unsigned)entry->since <= (unsigned)version && better(entry, best[own])) {
            best[own] = entry;
        }
    }
    bool own = known[1] && flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (!best[own]) {
        return known[0] || known[1] ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                    : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    memcpy(function, &best[own]->function, sizeof *function);
    return CU_GET_PROC_ADDRESS_SUCCESS;
}

/* The later form tells in the word what it did not find, and succeeds. */
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    CUdriverProcAddressQueryResult result;
    int newest;

    SG_REQUIRE(symbol && function && flags <= FLAGS, CUDA_ERROR_INVALID_VALUE);
    /* It may be called before cuInit, as cuDriverGetVersion. */
    SG_TRY(sg_claimed_version(&newest));
    *function = NULL;
    result = find(symbol, version, newest, flags, function);
    if (status) {
        *status = result;
    }
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags) {
    int newest;

    SG_REQUIRE(symbol && function && flags <= FLAGS, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_claimed_version(&newest));
    return find(symbol, version, newest, flags, function) == CU_GET_PROC_ADDRESS_SUCCESS
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_FOUND;
}

static bool told;

/* The tables are the driver's private interfaces to NVIDIA's own libraries. What they are for is not
 * documented, so a program that needs one hears why it ends here, and not by an error's number. */
CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    SG_REQUIRE(table && id, CUDA_ERROR_INVALID_VALUE);
    *table = NULL;
    if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED)) {
        fprintf(stderr,
                "simgpu: this program uses the CUDA runtime library, which needs an undocumented "
                "interface of the driver; only programs of the driver API run on simgpu\n");
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}
