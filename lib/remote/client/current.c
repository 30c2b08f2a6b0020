/* The contexts that are current to each thread, one above the other. */
#include "remote/client/current.h"
#include "remote/generated/cuda_stubs.h"

#include <pthread.h>
#include <stdlib.h>

#define DEPTH 64u

struct stack {
    unsigned depth;
    uint64_t numbers[DEPTH];
};
/* initial-exec: every record says the current context. Little, because libraries that are loaded later share little of
 * such storage. */
static _Thread_local struct {
    struct stack *stack;
    uint64_t seen; /* contexts_changed when `living` was found out; 0 never */
    uint64_t living;
} thread __attribute__((tls_model("initial-exec")));
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

static void end_thread(void *stack) {
    thread.stack = NULL;
    thread.seen = 0;
    free(stack);
}

static void make_key(void) {
    has_key = pthread_key_create(&key, end_thread) == 0;
}

uint64_t current_top(void) {
    const struct stack *stack = thread.stack;

    return stack && stack->depth ? stack->numbers[stack->depth - 1] : 0;
}

uint64_t remote_current(void) {
    uint64_t now = __atomic_load_n(&contexts_changed, __ATOMIC_ACQUIRE);

    if (thread.seen != now) {
        uint64_t number = current_top();

        thread.living = number && context_lives(number) ? number : 0;
        thread.seen = now;
    }
    return thread.living;
}

CUresult remote_current_result(void) {
    uint64_t now = remote_current();

    return now             ? (CUresult)context_fault_of(now)
           : current_top() ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                           : CUDA_ERROR_INVALID_CONTEXT;
}

int32_t remote_current_told(uint16_t call, int32_t result) {
    switch (call) {
    /* These speak of the context that they name. */
    case REMOTE_cuCtxDestroy:
    case REMOTE_cuCtxDestroy_v2:
    case REMOTE_cuCtxDetach:
    case REMOTE_cuCtxGetApiVersion:
    case REMOTE_cuCtxGetDevice_v2:
    case REMOTE_cuCtxGetId:
    case REMOTE_cuCtxSynchronize_v2:
    case REMOTE_cuDevicePrimaryCtxRelease:
    case REMOTE_cuDevicePrimaryCtxRelease_v2:
        return result;
    default:
        return result == CUDA_ERROR_INVALID_CONTEXT && call < REMOTE_NVML &&
                       remote_current_result() == CUDA_ERROR_CONTEXT_IS_DESTROYED
                   ? (int32_t)CUDA_ERROR_CONTEXT_IS_DESTROYED
                   : result;
    }
}

/* Puts a context on top of the thread's others; false without memory. */
bool current_push(uint64_t number) {
    if (!thread.stack) {
        pthread_once(&once, make_key);
        struct stack *stack = has_key ? calloc(1, sizeof *stack) : NULL;
        if (!stack || pthread_setspecific(key, stack) != 0) {
            free(stack);
            return false;
        }
        thread.stack = stack;
    }
    if (thread.stack->depth == DEPTH) {
        return false;
    }
    thread.stack->numbers[thread.stack->depth++] = number;
    thread.seen = 0;
    return true;
}

void current_pop(void) {
    thread.stack->depth--;
    thread.seen = 0;
}

static CUresult gate(void) {
    return (CUresult)remote_gate(REMOTE_NO_CALL);
}

CUresult REMOTE_STUB(cuCtxPushCurrent_v2)(CUcontext ctx) {
    CUresult result = gate();

    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!context_lives((uint64_t)ctx)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return current_push((uint64_t)ctx) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult REMOTE_STUB(cuCtxPushCurrent)(CUcontext ctx) {
    return REMOTE_STUB(cuCtxPushCurrent_v2)(ctx);
}

CUresult REMOTE_STUB(cuCtxPopCurrent_v2)(CUcontext *ctx) {
    CUresult result = gate();
    uint64_t number = current_top();

    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!number) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (ctx) {
        *ctx = (CUcontext)number;
    }
    current_pop();
    return CUDA_SUCCESS;
}

CUresult REMOTE_STUB(cuCtxPopCurrent)(CUcontext *ctx) {
    return REMOTE_STUB(cuCtxPopCurrent_v2)(ctx);
}

/* Replaces the topmost; NULL removes it. */
CUresult REMOTE_STUB(cuCtxSetCurrent)(CUcontext ctx) {
    CUresult result = gate();

    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (ctx && !context_lives((uint64_t)ctx)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (current_top()) {
        current_pop();
    }
    return !ctx || current_push((uint64_t)ctx) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult REMOTE_STUB(cuCtxGetCurrent)(CUcontext *ctx) {
    CUresult result = gate();

    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!ctx) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ctx = (CUcontext)current_top();
    return CUDA_SUCCESS;
}

CUresult REMOTE_STUB(cuCtxGetDevice)(CUdevice *device) {
    CUresult result = gate();

    result = result == CUDA_SUCCESS ? remote_current_result() : result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUdevice found = remote_context_device(remote_current());
    if (found < 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *device = found;
    return CUDA_SUCCESS;
}
