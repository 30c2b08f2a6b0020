/* How an operation passes through a stream.
 *
 * An operation is issued when everything before it in its stream has been issued: it takes effect
 * then and is scheduled in the channel after the stream's tail, at which all that it waits for has
 * ended. So dependencies between streams of one GPU need no waiting, and nearly every operation is
 * issued by the call that gives it. What has to wait (host functions, waits for values, waits for
 * another GPU, and everything behind these) is kept in its stream and issued by a thread that
 * exists once the first operation has had to wait.
 */
#define _GNU_SOURCE
#include "simgpu/cuda/queue.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

static struct {
    pthread_cond_t changed; /* with the work lock */
    bool started;
    struct link busy; /* streams with waiting operations */
} worker = {.changed = PTHREAD_COND_INITIALIZER, .busy = {&worker.busy, &worker.busy}};

void queue_fork_child(void) {
    pthread_cond_init(&worker.changed, NULL);
    worker.started = false;
    link_init(&worker.busy);
}

/* Does everything but host functions; the position to wait for as of queue_spend. */
static uint64_t issue(CUstream stream, const struct stream_op *op) {
    struct sg_work work = op_perform(op, stream->ctx->device);
    uint64_t before = 0;

    queue_follow(stream);
    if (work.ns) {
        before = queue_spend(stream, &work);
        op_given(&work);
    }
    if (op->kind == OP_RECORD) {
        event_issue(op->event, stream, op->ticket, stream->tail);
    }
    queue_announce(stream);
    return before;
}

static void finish_first(CUstream stream) {
    struct stream_op *op = stream->first;

    stream->first = op->next;
    if (!stream->first) {
        stream->last = NULL;
        link_remove(&stream->busy);
    }
    stream->passed = op->ticket;
    stream->waiting--;
    __atomic_sub_fetch(&stream->ctx->deferred, 1, __ATOMIC_RELEASE);
    op_drop(op);
    pthread_cond_broadcast(&worker.changed);
}

/* Calls a host function with no lock held. The operation stays first until it has returned. */
static void call_host(CUstream stream, struct stream_op *op) {
    op->running = true;
    sg_work_unlock();
    if (op->host.callback) {
        op->host.callback(stream, CUDA_SUCCESS, op->host.data);
    } else {
        op->host.function(op->host.data);
    }
    sg_work_lock();
    finish_first(stream);
}

/* Issues what can be issued of one stream; true when anything happened. */
static bool advance(CUstream stream, bool may_call, uint64_t *sleep_ns) {
    bool any = false;

    while (stream->first && !stream->first->running) {
        struct stream_op *op = stream->first;
        uint64_t left = 10 * QUEUE_POLL_NS;
        if (!queue_issuable(stream, op, &left)) {
            if (left < *sleep_ns) {
                *sleep_ns = left;
            }
            break;
        }
        if (op->kind == OP_HOST) {
            if (!may_call) {
                pthread_cond_broadcast(&worker.changed);
                break;
            }
            call_host(stream, op);
            return true;
        }
        issue(stream, op);
        finish_first(stream);
        any = true;
    }
    return any;
}

/* The work lock. Issues all that can be issued; returns how long nothing will change by time
   alone. */
static uint64_t progress(bool may_call) {
    uint64_t sleep_ns = 10 * QUEUE_POLL_NS;
    bool again = true;

    while (again) {
        again = false;
        for (struct link *at = worker.busy.next; at != &worker.busy; at = at->next) {
            if (advance(CONTAINER(at, struct CUstream_st, busy), may_call, &sleep_ns)) {
                again = true; /* the list may have changed under us */
                break;
            }
        }
    }
    return sleep_ns;
}

static void wait_changed(uint64_t ns) {
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    uint64_t at = (uint64_t)until.tv_nsec + ns;
    until.tv_sec += (time_t)(at / 1000000000u);
    until.tv_nsec = (long)(at % 1000000000u);
    pthread_cond_timedwait(&worker.changed, &sg_driver.work, &until);
}

static void *work(void *unused) {
    (void)unused;
    sg_work_lock();
    for (;;) {
        uint64_t ns = progress(true);
        if (worker.busy.next == &worker.busy) {
            pthread_cond_wait(&worker.changed, &sg_driver.work);
        } else {
            wait_changed(ns);
        }
    }
    return NULL;
}

static CUresult start_worker(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;

    if (worker.started) {
        return CUDA_SUCCESS;
    }
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* Blocks all signals in this thread: they belong to the program's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    worker.started = pthread_create(&thread, &attributes, work, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return worker.started ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- giving ---- */

static unsigned collect(CUstream stream, struct barrier *out) {
    CUcontext ctx = stream->ctx;
    unsigned n = 0;

    for (struct link *at = ctx->streams.next; at != &ctx->streams; at = at->next) {
        CUstream other = CONTAINER(at, struct CUstream_st, of_context);
        bool ordered = stream->gathers ? true
                       : stream->is_legacy
                           ? !(other->flags & CU_STREAM_NON_BLOCKING)
                           : other->is_legacy && !(stream->flags & CU_STREAM_NON_BLOCKING);
        if (other == stream || !ordered || !other->first) {
            continue;
        }
        if (out) {
            out[n] = (struct barrier){other, other->id, other->tickets};
        }
        n++;
    }
    return n;
}

static bool blocking(CUstream stream, const struct stream_op *op) {
    uint64_t left;

    switch (op->kind) {
    case OP_HOST:
        return true;
    case OP_KERNEL:
        return kernel_awaits(&op->launch);
    case OP_VALUES:
        return !queue_values_hold(&op->values);
    case OP_WAIT:
        return !queue_wait_over(stream, &op->wait, &left);
    default:
        return false;
    }
}

/* The work lock. Keeps the operation at the end of its stream. */
static CUresult defer(CUstream stream, const struct stream_op *op) {
    unsigned count = collect(stream, NULL);
    struct stream_op *kept;

    SG_TRY(start_worker());
    if (!(kept = op_keep(op))) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (count && !(kept->barriers = malloc(count * sizeof *kept->barriers))) {
        op_drop(kept);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    kept->barrier_count = collect(stream, kept->barriers);
    kept->ticket = ++stream->tickets;
    if (kept->kind == OP_RECORD) {
        event_defer(kept->event, stream, kept->ticket);
    }
    if (stream->last) {
        stream->last->next = kept;
    } else {
        stream->first = kept;
    }
    if (stream->first == kept) {
        link_add(&worker.busy, &stream->busy);
    }
    stream->last = kept;
    stream->waiting++;
    __atomic_add_fetch(&stream->ctx->deferred, 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&worker.changed);
    while (stream->waiting > sg_driver.machine->queue_depth && sg_driver.machine->queue_depth) {
        wait_changed(progress(false));
    }
    return CUDA_SUCCESS;
}

bool queue_waits(CUstream stream) {
    return stream->ctx->deferred && (stream->first || collect(stream, NULL));
}

CUresult sg_enqueue(CUstream stream, const struct stream_op *op) {
    struct device *device = stream->ctx->device;
    uint64_t before;

    SG_TRY(op_check(op, stream->capture != NULL));
    if (stream->capture) {
        return capture_add(stream, op);
    }
    SG_TRY(capture_implicit(stream));
    /* While nothing waits in the context, an operation that cannot block is issued without the
     * lock: only the calling thread could observe the order. */
    if (__atomic_load_n(&stream->ctx->deferred, __ATOMIC_ACQUIRE) == 0 && op->kind <= OP_FILL &&
        op->kind != OP_EMPTY && !(op->kind == OP_KERNEL && kernel_awaits(&op->launch))) {
        struct sg_work work = op_perform(op, device);
        if (work.ns == 0) {
            queue_follow(stream);
            queue_announce(stream);
            return CUDA_SUCCESS;
        }
        sg_work_lock();
        queue_follow(stream);
        before = queue_spend(stream, &work);
        queue_announce(stream);
        sg_work_unlock();
        op_given(&work);
        queue_wait_room(stream, before);
        return CUDA_SUCCESS;
    }
    CUresult result = CUDA_SUCCESS;
    before = 0;
    sg_work_lock();
    if (queue_waits(stream) || blocking(stream, op)) {
        result = defer(stream, op);
    } else {
        before = issue(stream, op);
    }
    sg_work_unlock();
    queue_wait_room(stream, before);
    return result;
}

/* ---- waiting ---- */

/* The work lock. Whether operations wait that a synchronisation with the stream includes. */
static bool anything_waits(CUstream stream) {
    return stream->first || (stream->is_legacy && collect(stream, NULL));
}

static uint64_t last_position(CUstream stream) {
    uint64_t tail = __atomic_load_n(&stream->tail, __ATOMIC_RELAXED);
    uint64_t others = __atomic_load_n(&stream->ctx->blocking_tail, __ATOMIC_RELAXED);

    return stream->is_legacy && others > tail ? others : tail;
}

CUresult sg_drain(CUstream stream) {
    CUcontext ctx = stream->ctx;

    if (__atomic_load_n(&ctx->deferred, __ATOMIC_ACQUIRE)) {
        sg_work_lock();
        while (anything_waits(stream) && mps_result(ctx->device->gpu) == CUDA_SUCCESS) {
            wait_changed(progress(false));
        }
        sg_work_unlock();
    }
    queue_wait(ctx->device, last_position(stream));
    pools_synchronised(ctx->device);
    return sg_context_result(ctx);
}

CUresult sg_drain_context(CUcontext ctx) {
    uint64_t last = 0;

    ctx = ctx->of ? ctx->of : ctx; /* waits for more than a green context's own work, as it may */
    sg_work_lock();
    while (ctx->deferred && mps_result(ctx->device->gpu) == CUDA_SUCCESS) {
        wait_changed(progress(false));
    }
    for (struct link *at = ctx->streams.next; at != &ctx->streams; at = at->next) {
        CUstream stream = CONTAINER(at, struct CUstream_st, of_context);
        if (stream->tail > last) {
            last = stream->tail;
        }
    }
    sg_work_unlock();
    queue_wait(ctx->device, last);
    pools_synchronised(ctx->device);
    return sg_context_result(ctx);
}

bool sg_stream_done(CUstream stream) {
    uint64_t left;

    if (__atomic_load_n(&stream->ctx->deferred, __ATOMIC_ACQUIRE)) {
        sg_work_lock();
        progress(false);
        bool waits = anything_waits(stream);
        sg_work_unlock();
        if (waits) {
            return false;
        }
    }
    return queue_reached(stream->ctx->device, last_position(stream), &left);
}

void queue_help(void) {
    sg_work_lock();
    wait_changed(progress(false));
    sg_work_unlock();
}
