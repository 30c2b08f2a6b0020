/* The tables of both libraries' functions, and cuGetProcAddress: the newest function of a name that both the program's version of CUDA and the worker's driver have. */
#include "remote/client/names.h"
#include "remote/client/inside.h"

#include "abi/generated/nvml_functions.h"

#include <limits.h>
#include <string.h>

/* The tables' type is no function's; whoever calls through one knows the function's. */
#pragma GCC diagnostic ignored "-Wcast-function-type"

enum variant { VARIANT_none, VARIANT_ptsz, VARIANT_ptds };

struct name {
    const char *base; /* as a program asks for it */
    int since;
    enum variant variant;
};

static const struct name names[] = {
#define CUDA_FN(name, base, since, variant, kind, hooked) {#base, since, VARIANT_##variant},
#include "abi/generated/cuda_names.inc"
#undef CUDA_FN
};
#define NAMES (sizeof names / sizeof *names)

remote_function *const divvy_remote_cuda[] = {
#define CUDA_FN(name, base, since, variant, kind, hooked) (remote_function *)name,
#include "abi/generated/cuda_names.inc"
#undef CUDA_FN
};

remote_function *const divvy_remote_nvml[] = {
#define NVML_FN(name, base, version, kind) (remote_function *)name,
#include "abi/generated/nvml_names.inc"
#undef NVML_FN
};

#define ALL_FLAGS                                                                                  \
    (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)

/* The version of the worker's driver. Where there is no worker a program finds every function, and learns from cuInit. */
static int ask_newest(void) {
    int version, known = remote_newest_known();

    if (known == INT_MAX && remote_session_begin() == CUDA_SUCCESS &&
        cuDriverGetVersion(&version) == CUDA_SUCCESS) {
        remote_newest_set(version);
        known = version;
    }
    return known;
}

/* A name with functions for the thread's own stream is looked for among these alone when they are asked for, also where
 * the asked version had none yet. Later names of one version come later in the description. */
static CUdriverProcAddressQueryResult find(const char *base, int version, cuuint64_t flags,
                                           void **function) {
    bool known[2] = {false, false};
    size_t best[2] = {NAMES, NAMES};
    int driver = ask_newest();

    for (size_t i = 0; i < NAMES; i++) {
        bool own = names[i].variant != VARIANT_none;
        if (names[i].since > driver || strcmp(names[i].base, base) != 0) {
            continue;
        }
        known[own] = true;
        if ((unsigned)names[i].since <= (unsigned)version &&
            (best[own] == NAMES || names[i].since >= names[best[own]].since)) {
            best[own] = i;
        }
    }
    bool own = known[1] && flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (best[own] == NAMES) {
        return known[0] || known[1] ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                    : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    memcpy(function, &divvy_remote_cuda[best[own]], sizeof *function);
    return CU_GET_PROC_ADDRESS_SUCCESS;
}

CUresult cuGetProcAddress(const char *base, void **function, int version, cuuint64_t flags) {
    if (!base || !function || flags > ALL_FLAGS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return find(base, version, flags, function) == CU_GET_PROC_ADDRESS_SUCCESS
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_FOUND;
}

/* What was not found the later form tells by the status, and succeeds. */
CUresult cuGetProcAddress_v2(const char *base, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    if (!base || !function || flags > ALL_FLAGS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *function = NULL;
    CUdriverProcAddressQueryResult found = find(base, version, flags, function);
    if (status) {
        *status = found;
    }
    return CUDA_SUCCESS;
}
