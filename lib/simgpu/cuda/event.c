/* Events. */
#include "simgpu/cuda/queue.h"

#include <string.h>

#define KNOWN_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

static void end(CUevent event) {
    capture_forget_event(event);
    sg_work_lock();
    link_remove(&event->of_context);
    event_unshare(event);
    handle_end(event, HANDLE_EVENT);
    sg_work_unlock();
}

/* The caller of a context's end sees to it that no other call uses what is the context's. */
void events_end_context(CUcontext ctx) {
    while (ctx->events.next != &ctx->events) {
        end(CONTAINER(ctx->events.next, struct CUevent_st, of_context));
    }
}

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(event && !(flags & ~(unsigned)KNOWN_FLAGS), CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(!(flags & CU_EVENT_INTERPROCESS) || (flags & CU_EVENT_DISABLE_TIMING),
               CUDA_ERROR_INVALID_VALUE);
    CUevent made = event_new(ctx, flags);
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *event = made;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
    SG_REQUIRE(event, CUDA_ERROR_INVALID_HANDLE);
    SG_READY();
    SG_REQUIRE(handle_given(event, HANDLE_EVENT), CUDA_ERROR_INVALID_HANDLE);
    end(event);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
    return cuEventDestroy_v2(event);
}

/* The moment of a mark is when the channel reached the end of the record, which executes in its
 * turn as everything does: never while another process has the GPU. */
static bool done(struct mark *mark) {
    struct sg_instance *in = &sg_driver.instance;
    uint64_t left, now = sg_time(in);

    if (!mark->stream || mark->moment) {
        return true;
    }
    if (!mark->issued || now < mark->not_before) {
        return false;
    }
    mark->moment = sg_reached(in, mark->device->gpu, now, mark->position, &left);
    if (!mark->moment) {
        mark->not_before = now + left;
    }
    return mark->moment != 0;
}

static bool over(CUevent event) {
    uint64_t left;

    if (!event->shared) {
        return done(&event->mark);
    }
    struct mark mark = event_shared_mark(event);
    return event_shared_over(&mark, &left);
}

static CUresult record(CUevent event, CUstream handle, unsigned flags, bool ptds) {
    SG_STREAM(stream, handle, ptds);
    SG_REQUIRE(handle_given(event, HANDLE_EVENT), CUDA_ERROR_INVALID_HANDLE);
    SG_REQUIRE(flags <= CU_EVENT_RECORD_EXTERNAL, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(event->ctx == stream->ctx, CUDA_ERROR_INVALID_HANDLE); /* as documented */
    if (stream->capture && flags != CU_EVENT_RECORD_EXTERNAL) {
        return capture_record(stream, event);
    }
    capture_forget_event(event);
    return sg_enqueue(stream, &(struct stream_op){.kind = OP_RECORD, .event = event});
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    return record(event, stream, 0, false);
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) {
    return record(event, stream, 0, true);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
    return record(event, stream, flags, false);
}

CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags) {
    return record(event, stream, flags, true);
}

/* Whether a stream of the context is captured, of which no event can be recorded then. */
static bool captures(CUcontext ctx) {
    bool any = false;

    sg_work_lock();
    for (struct link *at = ctx->streams.next; at != &ctx->streams; at = at->next) {
        any = any || CONTAINER(at, struct CUstream_st, of_context)->capture;
    }
    sg_work_unlock();
    return any;
}

CUresult cuCtxRecordEvent(CUcontext ctx, CUevent event) {
    SG_READY();
    SG_REQUIRE(ctx && sg_context_given(ctx), CUDA_ERROR_INVALID_CONTEXT);
    SG_REQUIRE(event && handle_given(event, HANDLE_EVENT), CUDA_ERROR_INVALID_HANDLE);
    ctx = ctx->of ? ctx->of : ctx; /* gathers more than a green context's own work, as it may */
    SG_TRY(sg_context_result(ctx));
    SG_REQUIRE(event->ctx == ctx, CUDA_ERROR_INVALID_HANDLE);
    SG_REQUIRE(!captures(ctx), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUstream gathering = stream_gathering(ctx);
    if (!gathering) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture_forget_event(event);
    return sg_enqueue(gathering, &(struct stream_op){.kind = OP_RECORD, .event = event});
}

static CUresult usable(CUevent event) {
    SG_READY();
    SG_REQUIRE(handle_given(event, HANDLE_EVENT), CUDA_ERROR_INVALID_HANDLE);
    SG_TRY(sg_context_result(event->ctx));
    SG_REQUIRE(!event->capture, CUDA_ERROR_CAPTURED_EVENT);
    return CUDA_SUCCESS;
}

/* Unsafe while a stream is captured, whatever the event, and so is waiting for one. */
CUresult cuEventQuery(CUevent event) {
    SG_GATE();
    SG_REQUIRE(event, CUDA_ERROR_INVALID_HANDLE);
    SG_TRY(usable(event));
    SG_TRY(capture_allows(event->ctx));
    sg_work_lock();
    bool is = over(event);
    sg_work_unlock();
    if (!is && event->mark.stream && !event->mark.issued) {
        sg_stream_done(event->mark.stream); /* issues what can be */
    }
    return is ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event) {
    SG_GATE();
    SG_REQUIRE(event, CUDA_ERROR_INVALID_HANDLE);
    SG_TRY(usable(event));
    SG_TRY(capture_allows(event->ctx));
    for (;;) {
        sg_work_lock();
        struct mark mark = event->mark;
        bool finished = event->shared && over(event);
        sg_work_unlock();
        if (finished || (!mark.stream && !event->shared)) {
            return CUDA_SUCCESS;
        }
        if (mark.issued && !event->shared) {
            queue_wait(mark.device, mark.position);
            break;
        }
        queue_help();
    }
    pools_synchronised(event->ctx->device);
    return sg_context_result(event->ctx);
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end) {
    SG_GATE();
    SG_REQUIRE(start && end, CUDA_ERROR_INVALID_HANDLE);
    SG_REQUIRE(ms, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(usable(start));
    SG_TRY(usable(end));
    SG_REQUIRE(!((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_HANDLE);
    CUresult result = CUDA_ERROR_NOT_READY;
    sg_work_lock();
    if (!start->mark.stream || !end->mark.stream || start->mark.device != end->mark.device) {
        result = CUDA_ERROR_INVALID_HANDLE;
    } else if (done(&start->mark) && done(&end->mark)) {
        *ms = (float)((double)(int64_t)(end->mark.moment - start->mark.moment) / 1e6);
        result = CUDA_SUCCESS;
    }
    sg_work_unlock();
    return result;
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end) {
    return cuEventElapsedTime(ms, start, end);
}

static CUresult wait(CUstream handle, CUevent event, unsigned flags, bool ptds) {
    SG_STREAM(stream, handle, ptds);
    SG_REQUIRE(handle_given(event, HANDLE_EVENT), CUDA_ERROR_INVALID_HANDLE);
    SG_REQUIRE(flags <= CU_EVENT_WAIT_EXTERNAL, CUDA_ERROR_INVALID_VALUE);
    if (flags != CU_EVENT_WAIT_EXTERNAL && (event->capture || stream->capture)) {
        return capture_wait(stream, event);
    }
    sg_work_lock();
    struct stream_op op = {.kind = OP_WAIT,
                           .event = event,
                           .wait = event->shared ? event_shared_mark(event) : event->mark};
    sg_work_unlock();
    return sg_enqueue(stream, &op);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
    return wait(stream, event, flags, false);
}

CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags) {
    return wait(stream, event, flags, true);
}
