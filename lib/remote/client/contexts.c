/* Contexts: which there are, how they begin and how they end. */
#include "remote/client/current.h"
#include "remote/generated/cuda_stubs.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

struct context {
    uint64_t number;
    CUdevice device;
    unsigned uses; /* what was attached, or retained */
    bool primary;  /* its number stays when it ends, because it can begin again */
    bool alive;
};

/* GPUs have room for few contexts: they are looked through. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct context *contexts;
static size_t count, room;
uint64_t contexts_changed = 1;
/* Of a primary context the program's calls follow each other, so that what they leave is known. */
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;

/* The lock is held. */
static struct context *find(uint64_t number) {
    for (size_t i = 0; i < count; i++) {
        if (contexts[i].number == number) {
            return &contexts[i];
        }
    }
    return NULL;
}

static void changed(void) {
    __atomic_add_fetch(&contexts_changed, 1, __ATOMIC_RELEASE);
}

/* Whether it is a context that lives: one that the program has made, or that the worker has told. */
bool context_lives(uint64_t number) {
    pthread_mutex_lock(&lock);
    const struct context *c = find(number);
    bool there = c != NULL, alive = c && c->alive;
    pthread_mutex_unlock(&lock);
    return there ? alive : number && remote_number_known(REMOTE_KIND_CUcontext, number);
}

CUdevice remote_context_device(uint64_t context) {
    CUdevice device = -1;

    pthread_mutex_lock(&lock);
    const struct context *c = find(context);
    bool there = c != NULL;
    if (there && c->alive) {
        device = c->device;
    }
    pthread_mutex_unlock(&lock);
    /* One that the worker alone has told of. */
    if (!there && context && remote_number_known(REMOTE_KIND_CUcontext, context) &&
        REMOTE_STUB(cuCtxGetDevice_v2)(&device, (CUcontext)context) != CUDA_SUCCESS) {
        return -1;
    }
    return device;
}

/* Notes that a context begins; false without memory. */
static bool begin(uint64_t number, CUdevice device, bool primary) {
    pthread_mutex_lock(&lock);
    struct context *c = find(number);
    if (!c && count == room) {
        size_t more = room ? 2 * room : 8;
        struct context *grown = realloc(contexts, more * sizeof *grown);
        if (grown) {
            contexts = grown;
            room = more;
        }
    }
    if (!c && count < room) {
        c = &contexts[count++];
        c->number = 0;
    }
    if (c) {
        unsigned uses = c->number == number && c->alive ? c->uses : 0;
        *c = (struct context){.number = number,
                              .device = device,
                              .uses = uses + 1,
                              .primary = primary,
                              .alive = true};
    }
    pthread_mutex_unlock(&lock);
    changed();
    return c != NULL;
}

static void (*watcher)(uint64_t context);

void remote_context_watch(void (*ended)(uint64_t context)) {
    __atomic_store_n(&watcher, ended, __ATOMIC_RELEASE);
}

/* Notes that one has ended, and with it what it had. */
static void end(uint64_t number) {
    pthread_mutex_lock(&lock);
    struct context *c = find(number);
    if (c && c->primary) {
        c->alive = false;
    } else if (c) {
        *c = contexts[--count];
    }
    pthread_mutex_unlock(&lock);
    remote_number_forget(REMOTE_KIND_CUcontext, number);
    changed();
    remote_range_left(number, 0, true);
    void (*ended)(uint64_t context) = __atomic_load_n(&watcher, __ATOMIC_ACQUIRE);
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
    if (!begin((uint64_t)made, device, false) || !current_push((uint64_t)made)) {
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

/* Counts one use of an ordinary context more or less. True if it was the last. */
static bool attach(uint64_t number, bool more) {
    bool last = false;

    pthread_mutex_lock(&lock);
    struct context *c = find(number);
    if (c && !c->primary) {
        c->uses += more ? 1 : UINT_MAX;
        last = c->uses == 0;
    }
    pthread_mutex_unlock(&lock);
    return last;
}

CUresult REMOTE_STUB(cuCtxAttach)(CUcontext *to, unsigned int flags) {
    CUresult result = remote_call_cuCtxAttach(to, flags);

    if (result == CUDA_SUCCESS) {
        attach((uint64_t)*to, true);
    }
    return result;
}

/* The last use ends the context. */
CUresult REMOTE_STUB(cuCtxDetach)(CUcontext ctx) {
    uint64_t number = (uint64_t)ctx;

    if (attach(number, false)) {
        CUresult result = destroy(ctx, remote_call_cuCtxDetach);
        if (result != CUDA_SUCCESS) {
            attach(number, true);
        }
        return result;
    }
    CUresult result = remote_call_cuCtxDetach(ctx);
    if (result != CUDA_SUCCESS) {
        attach(number, true);
    }
    return result;
}

/* The primary context of a device that lives; NULL if there is none. The lock is held. */
static struct context *primary_of(CUdevice device) {
    for (size_t i = 0; i < count; i++) {
        if (contexts[i].primary && contexts[i].alive && contexts[i].device == device) {
            return &contexts[i];
        }
    }
    return NULL;
}

CUresult REMOTE_STUB(cuDevicePrimaryCtxRetain)(CUcontext *to, CUdevice device) {
    CUcontext made = NULL;

    pthread_mutex_lock(&primary_lock);
    CUresult result = remote_call_cuDevicePrimaryCtxRetain(to ? &made : NULL, device);
    if (result == CUDA_SUCCESS && begin((uint64_t)made, device, true)) {
        *to = made;
    } else if (made) {
        remote_call_cuDevicePrimaryCtxRelease_v2(device);
        result = result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    }
    pthread_mutex_unlock(&primary_lock);
    return result;
}

/* Whether it lives; a record must not go with one that may have ended. */
static void doubt(uint64_t number, bool alive) {
    pthread_mutex_lock(&lock);
    struct context *c = find(number);
    if (c) {
        c->alive = alive;
    }
    pthread_mutex_unlock(&lock);
    changed();
}

/* One use less, or none. Where it may have been the last, the driver knows whether the context has ended: how uses and
 * resets count together is its own. */
static CUresult let_go(CUdevice device, bool last, CUresult (*call)(CUdevice)) {
    unsigned flags;
    int active = 1;

    pthread_mutex_lock(&primary_lock);
    CUresult result = call(device);
    pthread_mutex_lock(&lock);
    struct context *c = primary_of(device);
    uint64_t number = c ? c->number : 0;
    last = last || (c && c->uses <= 1);
    if (c && !last && result == CUDA_SUCCESS) {
        c->uses--;
    }
    pthread_mutex_unlock(&lock);
    if (number && last) {
        doubt(number, false);
        CUresult asked = REMOTE_STUB(cuDevicePrimaryCtxGetState)(device, &flags, &active);
        result = result == CUDA_SUCCESS ? asked : result; /* an earlier error is not lost */
        doubt(number, active);
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
