/* What an event stands for once a stream has a record of it. */
#include "simgpu/cuda/queue.h"

void event_defer(CUevent event, CUstream stream, uint64_t ticket) {
    event->mark = (struct mark){
        .stream = stream, .stream_id = stream->id, .ticket = ticket, .device = stream->ctx->device};
    event_publish(event);
}

/* A later record of the same event, or its destruction, may have overtaken a record that waited. */
void event_issue(CUevent event, CUstream stream, uint64_t ticket, uint64_t position) {
    if (ticket && (!handle_is(event, HANDLE_EVENT) || event->mark.stream_id != stream->id ||
                   event->mark.ticket != ticket)) {
        return;
    }
    event->mark = (struct mark){.stream = stream,
                                .stream_id = stream->id,
                                .ticket = ticket,
                                .device = stream->ctx->device,
                                .position = position,
                                .issued = true};
    event_publish(event);
}
