/* Functions of the program that the driver calls: its stream waits here until the client has called them. */
#include "remote/worker/callback.h"

#include "remote/due.h"
#include "remote/worker/hand.h"

#include <stdlib.h>

struct due {
    struct remote_worker *worker;
    uint64_t function; /* number of the client's */
    bool once;         /* it is freed when it was called */
    struct due *next;  /* of those that are kept */
};

#define CHAINS 256u

static struct due *kept[CHAINS]; /* the executor's */

static struct due *due_new(struct remote_worker *worker, uint64_t function, bool once) {
    struct due *due = malloc(sizeof *due);

    if (due) {
        *due = (struct due){worker, function, once, NULL};
    }
    return due;
}

void *remote_due_kept(struct remote_worker *worker, uint64_t function) {
    struct due **chain = &kept[(function * UINT64_C(0x9e3779b97f4a7c15)) >> 56];

    for (struct due *due = *chain; due; due = due->next) {
        if (due->function == function) {
            return due;
        }
    }
    struct due *due = due_new(worker, function, false);
    if (due) {
        due->next = *chain;
        *chain = due;
    }
    return due;
}

uint64_t remote_due_number(CUhostFn function, const void *due) {
    return function == remote_due_call ? ((const struct due *)due)->function : 0;
}

static void notify(const struct due *due, const struct due_notice *notice) {
    const struct remote_piece piece = {notice, sizeof *notice};

    remote_worker_notify(due->worker, REMOTE_CALLBACK, &piece, 1);
}

/* Has the client call it, and waits until it has or is gone. */
static void ask(struct due *due, CUresult status) {
    struct due_wait self = {0};

    if (due_wait_begin(&self)) {
        notify(due, &(struct due_notice){.ticket = self.ticket,
                                         .function = due->function,
                                         .status = (uint32_t)status,
                                         .last = due->once});
    }
    due_wait_end(due->worker, &self);
    if (due->once) {
        free(due);
    }
}

void remote_due_call(void *due) {
    ask(due, CUDA_SUCCESS);
}

static void call_in_stream(CUstream stream, CUresult status, void *due) {
    (void)stream;
    ask(due, status);
}

/* The driver may call this on the executor, which would wait for itself; and nothing waits for a destructor. */
static void destroy(void *data) {
    struct due *due = data;

    notify(due, &(struct due_notice){.function = due->function, .last = 1});
    free(due);
}

enum remote_outcome remote_hand_callback(struct remote_decoder *decoder) {
    if (!remote_words(decoder, 1) || !remote_taken(decoder, true)) {
        return REMOTE_GARBLED;
    }
    due_returned(decoder->words[0]);
    return REMOTE_LATER;
}

/* What the driver did not take is never called. */
static void drop(struct due *due) {
    if (due) {
        notify(due, &(struct due_notice){.function = due->function, .last = 1, .unused = 1});
        if (due->once) {
            free(due);
        }
    }
}

/* Whether a stream is captured: then the function is called with each launch of the graph. */
static bool is_captured(const struct remote_cuda_driver *cuda, CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return remote_capture_active() && cuda->cuStreamIsCapturing &&
           cuda->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A function for a stream; `call` gives it to the driver. */
static enum remote_outcome decode(struct remote_decoder *decoder, bool has_function,
                                  CUresult (*call)(const struct remote_cuda_driver *cuda,
                                                   CUstream stream, struct due *due,
                                                   unsigned flags)) {
    struct due *due = NULL;

    if (!remote_words(decoder, DUE_WORDS)) {
        return REMOTE_GARBLED;
    }
    CUstream stream = (CUstream)remote_handle(decoder, DUE_STREAM, REMOTE_KIND_CUstream);
    uint64_t function = decoder->words[DUE_FUNCTION];
    if (!remote_taken(decoder, has_function)) {
        return remote_not_called(decoder);
    }
    if (function) {
        due = is_captured(decoder->cuda, stream) ? remote_due_kept(decoder->worker, function)
                                                 : due_new(decoder->worker, function, true);
        if (!due) {
            remote_answer(decoder, CUDA_ERROR_OUT_OF_MEMORY);
            return remote_finish(decoder);
        }
    }
    CUresult result = call(decoder->cuda, stream, due, (unsigned)decoder->words[DUE_FLAGS]);
    if (result != CUDA_SUCCESS) {
        drop(due);
    }
    remote_answer(decoder, (int32_t)result);
    return remote_finish(decoder);
}

#define DUE(name, ...)                                                                             \
    static CUresult call_##name(const struct remote_cuda_driver *cuda, CUstream stream,            \
                                struct due *due, unsigned flags) {                                 \
        (void)flags;                                                                               \
        return cuda->name(__VA_ARGS__);                                                            \
    }                                                                                              \
    enum remote_outcome remote_hand_##name(struct remote_decoder *decoder) {                       \
        return decode(decoder, decoder->cuda->name != NULL, call_##name);                          \
    }

DUE(cuLaunchHostFunc, stream, due ? remote_due_call : NULL, due)
DUE(cuLaunchHostFunc_ptsz, stream, due ? remote_due_call : NULL, due)
DUE(cuLaunchHostFunc_v2, stream, due ? remote_due_call : NULL, due, flags)
DUE(cuLaunchHostFunc_v2_ptsz, stream, due ? remote_due_call : NULL, due, flags)
DUE(cuStreamAddCallback, stream, due ? call_in_stream : NULL, due, flags)
DUE(cuStreamAddCallback_ptsz, stream, due ? call_in_stream : NULL, due, flags)

enum remote_outcome remote_hand_cuUserObjectCreate(struct remote_decoder *decoder) {
    static struct due nothing;
    CUuserObject object = 0;

    if (!remote_words(decoder, DUE_OBJECT_WORDS)) {
        return REMOTE_GARBLED;
    }
    remote_make_number(decoder, 0, DUE_MADE, REMOTE_KIND_CUuserObject);
    if (!remote_taken(decoder, decoder->cuda->cuUserObjectCreate != NULL)) {
        return remote_not_called(decoder);
    }
    /* Nothing is called for an object without a function. */
    uint64_t function = decoder->words[DUE_DESTROY];
    struct due *due = function ? due_new(decoder->worker, function, true) : &nothing;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (due) {
        result = decoder->cuda->cuUserObjectCreate(
            remote_is_given(decoder, 0) ? &object : NULL, due, function ? destroy : NULL,
            (unsigned)decoder->words[DUE_COUNT], (unsigned)decoder->words[DUE_OBJECT_FLAGS]);
        if (result != CUDA_SUCCESS && function) {
            drop(due);
        }
    }
    remote_answer(decoder, (int32_t)result);
    remote_give_made(decoder, 0, DUE_MADE, REMOTE_KIND_CUuserObject, (uint64_t)object);
    return remote_finish(decoder);
}
