/* A device of the process that is another GPU from now on. No work is left, and the gate is closed. */
#include "simgpu/cuda/saved.h"

#include "simgpu/cuda/queue.h"

#include <string.h>

/* Positions are of the channel that the process leaves: what was recorded keeps the moment. */
static void settle_event(CUevent event, uint32_t gpu) {
    struct sg_instance *in = &sg_driver.instance;
    uint64_t left, now = sg_time(in);
    struct mark *mark = &event->mark;

    if (mark->stream && !mark->moment) {
        uint64_t moment = sg_reached(in, gpu, now, mark->position, &left);
        mark->moment = moment ? moment : now;
    }
    mark->position = 0;
}

static void settle_stream(CUstream stream) {
    stream->tail = 0;
    stream->launch_count = 0;
    if (stream->launches) {
        memset(stream->launches, 0, sg_driver.machine->queue_depth * sizeof *stream->launches);
    }
}

static void settle_context(CUcontext ctx) {
    for (struct link *at = ctx->events.next; at != &ctx->events; at = at->next) {
        settle_event(CONTAINER(at, struct CUevent_st, of_context), ctx->device->gpu);
    }
    for (struct link *at = ctx->streams.next; at != &ctx->streams; at = at->next) {
        settle_stream(CONTAINER(at, struct CUstream_st, of_context));
    }
    ctx->blocking_tail = 0;
}

void device_move(struct device *device, uint32_t gpu) {
    sg_work_lock();
    for (struct link *at = sg_driver.contexts.next; at != &sg_driver.contexts; at = at->next) {
        CUcontext ctx = CONTAINER(at, struct CUctx_st, of_process);
        if (ctx->device == device) {
            settle_context(ctx);
        }
    }
    device->gpu = gpu;
    device->model = &sg_driver.machine->gpus[gpu];
    sg_channel_start(&sg_driver.instance, gpu, device->model->multiprocessors, device->usable);
    sg_work_unlock();
}
