/* An event, whoever makes it: the program, or the handle of another process. */
#include "simgpu/cuda/queue.h"

CUevent event_new(CUcontext ctx, unsigned flags) {
    CUevent event = handle_new(HANDLE_EVENT, sizeof *event);

    if (!event) {
        return NULL;
    }
    event->ctx = ctx;
    event->flags = flags;
    sg_work_lock();
    link_add(&ctx->events, &event->of_context);
    sg_work_unlock();
    return event;
}
