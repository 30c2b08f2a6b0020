/* How contexts begin and end. */
#include "remote/client/current.h"
#include "remote/generated/cuda_stubs.h"

#include <pthread.h>

/* Of a primary context the program's calls follow each other, so that what they leave is known. */
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;

static void (*watcher)(uint64_t context);

void remote_context_watch(void (*ended)(uint64_t context)) {
    __atomic_store_n(&watcher, ended, __ATOMIC_RELEASE);
}

/* A context has ended, and with it what it had. */
static void end(uint64_t number) {
    void (*ended)(uint64_t context) = __atomic_load_n(&watcher, __ATOMIC_ACQUIRE);

    context_end(number);
    remote_range_left(number, 0, true);
    if (ended) {
        ended(number);
    }
}

static CUresult gate(void) {
    return (CUresult)remote_gate(REMOTE_NO_CALL);
}

/* A context that the worker has made becomes current. */
static CUresult created(CUcontext *to, CUresult result, CUcontext made, CUdevice device) {
    if (result != CUDA_SUCCESS) {
        if (made) { /* the call tells of an earlier failure */
            remote_call_cuCtxDestroy_v2(made);
        }
        return result;
    }
    if (!to) { /* no worker of ours says so */
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!context_begin((uint64_t)made, device, false) || !current_push((uint64_t)made)) {
        remote_call_cuCtxDestroy_v2(made);
        end((uint64_t)made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *to = made;
    return CUDA_SUCCESS;
}

CUresult REMOTE_STUB(cuCtxCreate)(CUcontext *to, unsigned int flags, CUdevice device) {
    CUcontext made = NULL;
    CUresult result = remote_call_cuCtxCreate(to ? &made : NULL, flags, device);

    return created(to, result, made, device);
}

CUresult REMOTE_STUB(cuCtxCreate_v2)(CUcontext *to, unsigned int flags, CUdevice device) {
    CUcontext made = NULL;
    CUresult result = remote_call_cuCtxCreate_v2(to ? &made : NULL, flags, device);

    return created(to, result, made, device);
}

CUresult REMOTE_STUB(cuCtxCreate_v3)(CUcontext *to, CUexecAffinityParam *affinity, int number,
                                     unsigned int flags, CUdevice device) {
    CUcontext made = NULL;
    CUresult result =
        remote_call_cuCtxCreate_v3(to ? &made : NULL, affinity, number, flags, device);

    return created(to, result, made, device);
}

/* The structure's parts go as the parameters of cuCtxCreate_v3 do. What graphics shares with the context is on the
 * program's machine. */
CUresult REMOTE_STUB(cuCtxCreate_v4)(CUcontext *to, CUctxCreateParams *params, unsigned int flags,
                                     CUdevice device) {
    struct remote_call c;
    struct remote_reply r;
    CUcontext made = NULL;

    if (params && params->cigParams) {
        CUresult refused = gate();
        return refused != CUDA_SUCCESS ? refused : CUDA_ERROR_NOT_SUPPORTED;
    }
    remote_begin(&c, REMOTE_cuCtxCreate_v4, 4);
    remote_make(&c, 0, 0, REMOTE_KIND_CUcontext, to);
    remote_given(&c, 1, params);
    if (params) {
        int number = params->numExecAffinityParams;

        remote_array(&c, 2, params->execAffinityParams, (uint64_t)(number > 0 ? number : 0),
                     sizeof *params->execAffinityParams);
        c.words[1] = (uint64_t)(int64_t)number;
    }
    c.words[2] = flags;
    c.words[3] = (uint64_t)device;
    remote_ask(&c, &r);
    remote_get_made(&c, &r, 0, 0, REMOTE_KIND_CUcontext, &made);
    return created(to, (CUresult)remote_end(&c, &r), made, device);
}

/* Its memory makes room before the worker ends it, and is had back if that fails. */
static CUresult destroy(CUcontext ctx, CUresult (*call)(CUcontext)) {
    uint64_t number = (uint64_t)ctx;
    bool lived = context_lives(number);

    remote_landings_wait();
    remote_range_leave(number, 0);
    CUresult result = call(ctx);
    /* It may have ended though the call tells of an earlier failure: then its number is none any more. */
    bool ended =
        result == CUDA_SUCCESS || (lived && !remote_number_known(REMOTE_KIND_CUcontext, number));
    if (!ended) {
        remote_range_left(number, 0, false);
        return result;
    }
    end(number);
    if (current_top() == number) {
        current_pop();
    }
    return result;
}

CUresult REMOTE_STUB(cuCtxDestroy)(CUcontext ctx) {
    return destroy(ctx, remote_call_cuCtxDestroy);
}

CUresult REMOTE_STUB(cuCtxDestroy_v2)(CUcontext ctx) {
    return destroy(ctx, remote_call_cuCtxDestroy_v2);
}

CUresult REMOTE_STUB(cuCtxAttach)(CUcontext *to, unsigned int flags) {
    CUresult result = remote_call_cuCtxAttach(to, flags);

    if (result == CUDA_SUCCESS) {
        context_use((uint64_t)*to, true);
    }
    return result;
}

/* The last use ends the context. */
CUresult REMOTE_STUB(cuCtxDetach)(CUcontext ctx) {
    uint64_t number = (uint64_t)ctx;

    if (context_use(number, false)) {
        CUresult result = destroy(ctx, remote_call_cuCtxDetach);
        if (result != CUDA_SUCCESS) {
            context_use(number, true);
        }
        return result;
    }
    CUresult result = remote_call_cuCtxDetach(ctx);
    if (result != CUDA_SUCCESS) {
        context_use(number, true);
    }
    return result;
}

CUresult REMOTE_STUB(cuDevicePrimaryCtxRetain)(CUcontext *to, CUdevice device) {
    CUcontext made = NULL;

    pthread_mutex_lock(&primary_lock);
    CUresult result = remote_call_cuDevicePrimaryCtxRetain(to ? &made : NULL, device);
    if (to && result == CUDA_SUCCESS && context_begin((uint64_t)made, device, true)) {
        *to = made;
    } else if (made) {
        remote_call_cuDevicePrimaryCtxRelease_v2(device);
        result = result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    }
    pthread_mutex_unlock(&primary_lock);
    return result;
}

/* One use less, or none. Where it may have been the last, the driver knows whether the context has ended: how uses and
 * resets count together is its own. */
static CUresult let_go(CUdevice device, bool last, CUresult (*call)(CUdevice)) {
    unsigned flags;
    int active = 1;

    remote_landings_wait();
    pthread_mutex_lock(&primary_lock);
    CUresult result = call(device);
    uint64_t number = context_release(device, result == CUDA_SUCCESS, &last);
    if (number && last) {
        context_doubt(number, false);
        CUresult asked = REMOTE_STUB(cuDevicePrimaryCtxGetState)(device, &flags, &active);
        result = result == CUDA_SUCCESS ? asked : result; /* an earlier error is not lost */
        context_doubt(number, active);
        if (!active) {
            remote_range_leave(number, 0);
            end(number);
        }
    }
    pthread_mutex_unlock(&primary_lock);
    return result;
}

CUresult REMOTE_STUB(cuDevicePrimaryCtxRelease)(CUdevice device) {
    return let_go(device, false, remote_call_cuDevicePrimaryCtxRelease);
}

CUresult REMOTE_STUB(cuDevicePrimaryCtxRelease_v2)(CUdevice device) {
    return let_go(device, false, remote_call_cuDevicePrimaryCtxRelease_v2);
}

CUresult REMOTE_STUB(cuDevicePrimaryCtxReset)(CUdevice device) {
    return let_go(device, true, remote_call_cuDevicePrimaryCtxReset);
}

CUresult REMOTE_STUB(cuDevicePrimaryCtxReset_v2)(CUdevice device) {
    return let_go(device, true, remote_call_cuDevicePrimaryCtxReset_v2);
}
