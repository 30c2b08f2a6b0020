/* When an operation of a stream can be issued, and when what was issued is done. */
#include "simgpu/cuda/queue.h"

#include <stdlib.h>
#include <time.h>

static uint64_t executed(const struct device *device) {
    const struct sg_channel *channel =
        sg_channel(&sg_driver.instance, sg_driver.instance.id, device->gpu);

    return __atomic_load_n(&channel->executed, __ATOMIC_ACQUIRE);
}

bool queue_reached(struct device *device, uint64_t position, uint64_t *left) {
    /* What a failed server has dropped never ends, and nobody may wait for it. */
    if (position <= executed(device) || mps_result(device->gpu) != CUDA_SUCCESS) {
        return true;
    }
    return sg_reached(&sg_driver.instance, device->gpu, sg_time(&sg_driver.instance), position,
                      left) != 0;
}

/* How long a client of MPS waits until it looks at its server, which may fail it. */
#define LOOK_NS 5000000u

void queue_wait(struct device *device, uint64_t position) {
    struct sg_instance *in = &sg_driver.instance;

    for (;;) {
        uint64_t left;
        uint32_t moves = sg_clock_moves(in);
        if (queue_reached(device, position, &left)) {
            return;
        }
        mps_look();
        sg_clock_wait(in, mps_is_client() && left > LOOK_NS ? LOOK_NS : left, moves);
    }
}

/* Nothing is lost by sleeping while the stream has work for long. */
#define AMPLE_NS 1000000u

void queue_wait_room(CUstream stream, uint64_t before) {
    struct device *device = stream->ctx->device;
    uint64_t left;

    while (!sg_driver.instance.state->is_virtual &&
           __atomic_load_n(&stream->tail, __ATOMIC_RELAXED) > executed(device) + AMPLE_NS &&
           !queue_reached(device, before, &left)) {
        const struct timespec pause = {.tv_nsec = AMPLE_NS / 4};
        nanosleep(&pause, NULL);
    }
    queue_wait(device, before);
}

static void raise_to(uint64_t *value, uint64_t floor) {
    uint64_t seen = __atomic_load_n(value, __ATOMIC_RELAXED);

    while (seen < floor && !__atomic_compare_exchange_n(value, &seen, floor, true, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED))
        ;
}

void queue_follow(CUstream stream) {
    CUcontext ctx = stream->ctx;

    if (stream->gathers) {
        for (struct link *at = ctx->streams.next; at != &ctx->streams; at = at->next) {
            const struct CUstream_st *other = CONTAINER(at, struct CUstream_st, of_context);
            raise_to(&stream->tail, __atomic_load_n(&other->tail, __ATOMIC_RELAXED));
        }
    } else if (stream->is_legacy) {
        raise_to(&stream->tail, __atomic_load_n(&ctx->blocking_tail, __ATOMIC_RELAXED));
    } else if (!(stream->flags & CU_STREAM_NON_BLOCKING)) {
        raise_to(&stream->tail, __atomic_load_n(&ctx->legacy->tail, __ATOMIC_RELAXED));
    }
}

void queue_announce(CUstream stream) {
    if (!stream->is_legacy && !(stream->flags & CU_STREAM_NON_BLOCKING)) {
        raise_to(&stream->ctx->blocking_tail, __atomic_load_n(&stream->tail, __ATOMIC_RELAXED));
    }
}

uint64_t queue_spend(CUstream stream, struct sg_work *work) {
    struct sg_instance *in = &sg_driver.instance;
    struct device *device = stream->ctx->device;

    work->after = __atomic_load_n(&stream->tail, __ATOMIC_RELAXED);
    uint64_t end = sg_submit(in, device->gpu, sg_time(in), work);
    return queue_extend(stream, end);
}

uint64_t queue_extend(CUstream stream, uint64_t end) {
    uint64_t depth = sg_driver.machine->queue_depth, before;

    raise_to(&stream->tail, end);
    if (depth == 0) {
        return 0;
    }
    if (!stream->launches && !(stream->launches = calloc(depth, sizeof *stream->launches))) {
        return end;
    }
    before = stream->launches[stream->launch_count % depth];
    stream->launches[stream->launch_count++ % depth] = end;
    return before;
}

static bool value_holds(const CUstreamBatchMemOpParams *v) {
    uint64_t have = 0, want;

    if (v->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32) {
        uint32_t word = 0;
        sg_copy_out(&word, v->waitValue.address, 4);
        want = v->waitValue.value;
        /* GEQ compares cyclically: the difference as a signed number. */
        switch (v->waitValue.flags & 3u) {
        case CU_STREAM_WAIT_VALUE_GEQ:
            return (int32_t)(word - (uint32_t)want) >= 0;
        case CU_STREAM_WAIT_VALUE_NOR:
            return (uint32_t)~(word | (uint32_t)want) != 0;
        }
        have = word;
    } else if (v->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64) {
        sg_copy_out(&have, v->waitValue.address, 8);
        want = v->waitValue.value64;
        switch (v->waitValue.flags & 3u) {
        case CU_STREAM_WAIT_VALUE_GEQ:
            return (int64_t)(have - want) >= 0;
        case CU_STREAM_WAIT_VALUE_NOR:
            return ~(have | want) != 0;
        }
    } else {
        return true;
    }
    return (v->waitValue.flags & 3u) == CU_STREAM_WAIT_VALUE_EQ ? have == want : (have & want) != 0;
}

bool queue_values_hold(const struct values *values) {
    for (unsigned i = 0; i < values->count; i++) {
        if (!value_holds(&values->list[i])) {
            return false;
        }
    }
    return true;
}

bool queue_wait_over(CUstream stream, const struct mark *mark, uint64_t *left) {
    struct mark now = *mark;

    if (mark->shared) {
        return event_shared_over(mark, left);
    }
    if (!mark->stream) {
        return true;
    }
    if (!mark->issued && stream_passed(mark->stream, mark->stream_id, mark->ticket)) {
        now.issued = true;
        now.position = handle_is(mark->stream, HANDLE_STREAM) ? mark->stream->tail : 0;
    }
    if (!now.issued) {
        return false;
    }
    if (mark->device == stream->ctx->device) {
        raise_to(&stream->tail, now.position);
        return true;
    }
    return queue_reached(mark->device, now.position, left);
}

/* A kernel that waits for a word computes meanwhile. Nobody knows for how long, so it is given
 * that work piece by piece. */
static void await(CUstream stream, const struct stream_op *op, uint64_t *left) {
    if (queue_reached(stream->ctx->device, stream->tail, left)) {
        struct sg_work piece = op_work(op, stream->ctx->device, QUEUE_POLL_NS);
        queue_follow(stream);
        queue_spend(stream, &piece);
        queue_announce(stream);
        *left = QUEUE_POLL_NS;
    }
}

bool stream_passed(CUstream stream, unsigned long long id, uint64_t ticket) {
    return !handle_is(stream, HANDLE_STREAM) || stream->id != id || stream->passed >= ticket;
}

bool queue_issuable(CUstream stream, const struct stream_op *op, uint64_t *left) {
    for (unsigned i = 0; i < op->barrier_count; i++) {
        const struct barrier *b = &op->barriers[i];
        if (!stream_passed(b->stream, b->id, b->ticket)) {
            return false;
        }
    }
    switch (op->kind) {
    case OP_WAIT:
        return queue_wait_over(stream, &op->wait, left);
    case OP_VALUES:
        *left = QUEUE_POLL_NS;
        return queue_values_hold(&op->values);
    case OP_KERNEL:
        if (!kernel_awaits(&op->launch)) {
            return true;
        }
        await(stream, op, left);
        return false;
    case OP_HOST:
        return queue_reached(stream->ctx->device, stream->tail, left);
    default:
        return true;
    }
}
