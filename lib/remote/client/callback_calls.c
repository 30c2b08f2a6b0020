/* Functions that streams call, and objects that graphs keep. */
#include "remote/client/callback.h"
#include "remote/due.h"

/* A stream goes on with other work, so most of these do not wait. */
static CUresult give(enum remote_number number, CUstream stream,
                     const struct remote_callback *callback, unsigned flags, bool posted) {
    struct remote_call call;
    struct remote_reply reply;

    remote_begin(&call, number, DUE_WORDS);
    remote_use(&call, DUE_STREAM, REMOTE_KIND_CUstream, (uint64_t)stream);
    call.words[DUE_FLAGS] = flags;
    if (!call.fault && !(callback->plain || callback->of_stream)) {
        call.fault = CUDA_ERROR_INVALID_VALUE;
    }
    if (call.fault) {
        return (CUresult)call.fault;
    }
    /* The stream may be captured, and what is captured is not taken back. */
    call.words[DUE_FUNCTION] = callback->plain
                                   ? remote_callback_share(callback->plain, callback->data)
                                   : remote_callback_keep(callback);
    if (!call.words[DUE_FUNCTION]) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (posted) {
        return (CUresult)remote_post(&call);
    }
    remote_ask(&call, &reply);
    return (CUresult)remote_end(&call, &reply);
}

#define LAUNCH(name)                                                                               \
    CUresult name(CUstream stream, CUhostFn function, void *data) {                                \
        return give(REMOTE_##name, stream,                                                         \
                    &(struct remote_callback){.plain = function, .data = data}, 0, true);          \
    }
#define LAUNCH_V2(name)                                                                            \
    CUresult name(CUstream stream, CUhostFn function, void *data, unsigned int flags) {            \
        return give(REMOTE_##name, stream,                                                         \
                    &(struct remote_callback){.plain = function, .data = data}, flags, true);      \
    }
/* This refuses more than a host function, by which a program may tell whether it can use it: so it waits. */
#define CALLBACK(name)                                                                             \
    CUresult name(CUstream stream, CUstreamCallback function, void *data, unsigned int flags) {    \
        return give(                                                                               \
            REMOTE_##name, stream,                                                                 \
            &(struct remote_callback){.of_stream = function, .data = data, .stream = stream},      \
            flags, false);                                                                         \
    }

LAUNCH(cuLaunchHostFunc)
LAUNCH(cuLaunchHostFunc_ptsz)
LAUNCH_V2(cuLaunchHostFunc_v2)
LAUNCH_V2(cuLaunchHostFunc_v2_ptsz)
CALLBACK(cuStreamAddCallback)
CALLBACK(cuStreamAddCallback_ptsz)

CUresult cuUserObjectCreate(CUuserObject *object, void *data, CUhostFn destroy,
                            unsigned int references, unsigned int flags) {
    struct remote_call call;
    struct remote_reply reply;

    remote_begin(&call, REMOTE_cuUserObjectCreate, DUE_OBJECT_WORDS);
    call.words[DUE_COUNT] = references;
    call.words[DUE_OBJECT_FLAGS] = flags;
    if (destroy && !call.fault) {
        call.words[DUE_DESTROY] =
            remote_callback_keep(&(struct remote_callback){.plain = destroy, .data = data});
        if (!call.words[DUE_DESTROY]) {
            call.fault = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    remote_make(&call, 0, DUE_MADE, REMOTE_KIND_CUuserObject, object);
    remote_ask(&call, &reply);
    remote_get_made(&call, &reply, 0, DUE_MADE, REMOTE_KIND_CUuserObject, object);
    return (CUresult)remote_end(&call, &reply);
}
