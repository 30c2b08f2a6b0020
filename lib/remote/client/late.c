/* Errors of posted calls that a later call has to tell, the first of each context. A thread without a context has none. */
#include "remote/client/current.h"
#include "remote/client/inside.h"

#include <pthread.h>
#include <stdlib.h>

struct kept {
    struct kept *next;
    uint64_t context;
    int32_t error;
};

static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;
static struct kept *first;

static struct kept **find(uint64_t context) {
    struct kept **at = &first;

    while (*at && (*at)->context != context) {
        at = &(*at)->next;
    }
    return at;
}

static void keep(uint64_t context, int32_t error) {
    struct kept *kept = *find(context) ? NULL : malloc(sizeof *kept);

    if (kept) {
        *kept = (struct kept){first, context, error};
        __atomic_store_n(&first, kept, __ATOMIC_RELEASE);
    }
}

/* The error that was kept for a context, which is forgotten. */
static int32_t take(uint64_t context) {
    struct kept **at = find(context), *kept = *at;

    if (!kept) {
        return 0;
    }
    int32_t error = kept->error;
    __atomic_store_n(at, kept->next, __ATOMIC_RELEASE);
    free(kept);
    return error;
}

/* After these the driver answers every call in the context so, by its documentation: the process has to begin anew. */
static bool is_lasting(int32_t error) {
    switch ((CUresult)error) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
        return true;
    default:
        return false;
    }
}

/* What frees memory or ends a handle says nothing but whether it has, also where the program waits for it: who keeps what was
 * refused would keep what is gone. */
int32_t remote_late(uint16_t call, int32_t result, uint64_t late) {
    if (remote_is_nvml(call)) {
        return result;
    }
    result = remote_current_told(call, result);
    if (is_lasting(result)) {
        context_fault(remote_current(), result);
    }
    if (!late && !__atomic_load_n(&first, __ATOMIC_ACQUIRE)) {
        return result;
    }
    uint64_t context = remote_current();
    pthread_mutex_lock(&keeping);
    if (late) {
        keep(context, (int32_t)late);
    }
    if (!result && remote_tells_late(call) && !(remote_is_posted(call) && remote_blocks(call))) {
        result = take(context);
    }
    pthread_mutex_unlock(&keeping);
    if (is_lasting(result)) {
        context_fault(context, result);
    }
    return result;
}

/* Calls that the client may answer without the worker, and that the driver answers with the fault of the context. */
static bool is_judged_here(enum remote_number number) {
    switch (number) {
    case REMOTE_cuLaunch:
    case REMOTE_cuLaunchCooperativeKernel:
    case REMOTE_cuLaunchCooperativeKernel_ptsz:
    case REMOTE_cuLaunchGrid:
    case REMOTE_cuLaunchGridAsync:
    case REMOTE_cuLaunchKernel:
    case REMOTE_cuLaunchKernelEx:
    case REMOTE_cuLaunchKernelEx_ptsz:
    case REMOTE_cuLaunchKernel_ptsz:
    case REMOTE_cuLinkCreate:
    case REMOTE_cuLinkCreate_v2:
    case REMOTE_cuMemAllocHost_v2:
    case REMOTE_cuMemFreeHost:
    case REMOTE_cuMemGetAddressRange_v2:
    case REMOTE_cuMemHostAlloc:
    case REMOTE_cuMemHostGetDevicePointer_v2:
    case REMOTE_cuMemHostGetFlags:
    case REMOTE_cuMemHostRegister:
    case REMOTE_cuMemHostRegister_v2:
    case REMOTE_cuMemHostUnregister:
    case REMOTE_cuModuleLoad:
    case REMOTE_cuModuleLoadData:
    case REMOTE_cuModuleLoadDataEx:
    case REMOTE_cuModuleLoadFatBinary:
        return true;
    default:
        return false;
    }
}

int32_t remote_late_stands(enum remote_number number) {
    return is_judged_here(number) ? context_fault_of(remote_current()) : 0;
}

static void forked(void) {
    keeping = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    first = NULL;
}
ON_FORKED(forked);
