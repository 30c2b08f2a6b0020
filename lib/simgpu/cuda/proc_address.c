/* cuGetProcAddress: the newest variant of a function that the asked-for version of CUDA had. */
#include "simgpu/cuda/driver.h"

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

/* Per thread is what was asked for before newer is. */
static bool better(const struct entry *entry, const struct entry *best, bool per_thread) {
    if (!best) {
        return true;
    }
    if (per_thread && (entry->variant != VARIANT_none) != (best->variant != VARIANT_none)) {
        return entry->variant != VARIANT_none;
    }
    return entry->since > best->since ||
           (entry->since == best->since && strcmp(entry->name, best->name) > 0);
}

static CUdriverProcAddressQueryResult find(const char *symbol, int version, int newest,
                                           cuuint64_t flags, void **function) {
    const struct entry *best = NULL;
    bool known = false, per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

    for (size_t i = 0; i < ENTRIES; i++) {
        const struct entry *entry = &entries[i];
        if (entry->since > newest || strcmp(entry->base, symbol) != 0) {
            continue;
        }
        known = true;
        if (entry->since > version || (!per_thread && entry->variant != VARIANT_none)) {
            continue;
        }
        if (better(entry, best, per_thread)) {
            best = entry;
        }
    }
    if (!best) {
        return known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                     : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    memcpy(function, &best->function, sizeof *function);
    return CU_GET_PROC_ADDRESS_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    CUdriverProcAddressQueryResult result;
    int newest;

    SG_REQUIRE(symbol && function && !(flags & ~(cuuint64_t)3) && flags != 3,
               CUDA_ERROR_INVALID_VALUE);
    /* It may be called before cuInit, as cuDriverGetVersion. */
    SG_TRY(cuDriverGetVersion(&newest));
    *function = NULL;
    result = find(symbol, version, newest, flags, function);
    if (status) {
        *status = result;
    }
    return result == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

/* The tables are the driver's private interfaces to its own run-time library. */
CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    SG_REQUIRE(table && id, CUDA_ERROR_INVALID_VALUE);
    *table = NULL;
    return CUDA_ERROR_NOT_SUPPORTED;
}
