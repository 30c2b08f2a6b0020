/* cuInit, and what begins and ends the use of NVML, each counted as the worker's driver does it; and the tables of functions
 * that nobody documents. */
#include "remote/client/inside.h"
#include "remote/generated/cuda_stubs.h"
#include "remote/generated/nvml_stubs.h"

#include <stdio.h>
#include <stdlib.h>

/* Which devices the program wants to see, and in which order, the driver reads from the program's environment. */
static void send_environment(void) {
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"};
    char text[REMOTE_ENVIRONMENT_BYTES];
    uint64_t size = 0;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        int length =
            value ? snprintf(text + size, sizeof text - size, "%s=%s", names[i], value) : -1;
        if (length > 0 && (uint64_t)length < sizeof text - size) {
            size += (uint64_t)length + 1;
        }
    }
    struct remote_head head = {.size = (uint32_t)(sizeof head + 8 + remote_padded(size)),
                               .call = REMOTE_ENVIRONMENT,
                               .posted = 1,
                               .given = 1};
    const struct remote_piece pieces[] = {{&size, sizeof size}, {text, size}};
    if (size) {
        remote_send(&head, pieces, 2);
    }
}

CUresult cuInit(unsigned int flags) {
    CUresult result = flags ? CUDA_ERROR_INVALID_VALUE : remote_session_begin();

    if (result == CUDA_SUCCESS) {
        send_environment();
        result = remote_call_cuInit(flags);
    }
    if (result == CUDA_SUCCESS) {
        remote_session_cuda();
    }
    return result;
}

/* What nvmlInit answers where there is no connection. */
static nvmlReturn_t begin(void) {
    switch (remote_session_begin()) {
    case CUDA_SUCCESS:
        return NVML_SUCCESS;
    case CUDA_ERROR_NOT_INITIALIZED: /* the child of a fork */
        return NVML_ERROR_UNINITIALIZED;
    default:
        return remote_gate(REMOTE_nvmlInit_v2) == NVML_ERROR_GPU_IS_LOST
                   ? NVML_ERROR_GPU_IS_LOST
                   : NVML_ERROR_DRIVER_NOT_LOADED;
    }
}

static nvmlReturn_t begun(nvmlReturn_t result) {
    if (result == NVML_SUCCESS) {
        remote_session_nvml(1);
    }
    return result;
}

nvmlReturn_t nvmlInit(void) {
    nvmlReturn_t result = begin();

    return result == NVML_SUCCESS ? begun(remote_call_nvmlInit()) : result;
}

nvmlReturn_t nvmlInit_v2(void) {
    nvmlReturn_t result = begin();

    return result == NVML_SUCCESS ? begun(remote_call_nvmlInit_v2()) : result;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    nvmlReturn_t result = begin();

    return result == NVML_SUCCESS ? begun(remote_call_nvmlInitWithFlags(flags)) : result;
}

nvmlReturn_t nvmlShutdown(void) {
    nvmlReturn_t result = remote_call_nvmlShutdown();

    if (result == NVML_SUCCESS) {
        remote_session_nvml(-1);
    }
    return result;
}

/* Lists of shares say it too. The runtime library asks before it begins. */
static void tell_worker(void) {
    struct remote_call call;
    struct remote_reply reply;

    if (remote_session_begin() != CUDA_SUCCESS) {
        return;
    }
    remote_begin(&call, (enum remote_number)REMOTE_UNSERVED, 0);
    remote_ask(&call, &reply);
    remote_end(&call, &reply);
}

/* A program that needs such a table hears what to do, and not only an error's number. */
static void tell(const char *what, const char *instead) {
    static bool told;

    if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED)) {
        remote_say(
            "this program needs %s, which nobody documents and no other machine can answer; %s",
            what, instead);
        tell_worker();
    }
}

CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    if (!table || !id) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *table = NULL;
    tell("tables of the driver, as the CUDA runtime library does",
         "run it in a local share, divvy run without --backend remote, or on the GPU's host, "
         "divvy run --on HOST");
    return remote_call_cuGetExportTable(table, id);
}

nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id) {
    tell("tables of NVML, as nvidia-smi does", "divvy ls shows what it would");
    return remote_call_nvmlInternalGetExportTable(table, id);
}
