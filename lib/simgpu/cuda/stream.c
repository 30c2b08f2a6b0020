/* Streams: creation, end, what they tell. */
#include "simgpu/cuda/queue.h"

#include <stdlib.h>
#include <string.h>

CUstream stream_new(CUcontext ctx, CUcontext view, unsigned flags, int priority) {
    CUstream stream = handle_new(HANDLE_STREAM, sizeof *stream);

    if (!stream) {
        return NULL;
    }
    stream->ctx = ctx;
    stream->view = view;
    stream->flags = flags;
    /* Numbers outside the range are moved to its ends. */
    stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    stream->id = sg_new_id();
    link_init(&stream->busy);
    sg_work_lock();
    link_add(&ctx->streams, &stream->of_context);
    sg_work_unlock();
    return stream;
}

static void end(CUstream stream) {
    sg_work_lock();
    link_remove(&stream->of_context);
    free(stream->launches);
    stream->launches = NULL;
    sg_work_unlock();
    handle_end(stream, HANDLE_STREAM);
}

void streams_detach(CUcontext view) {
    CUcontext ctx = view->of;

    end(view->legacy);
    sg_work_lock();
    for (struct link *at = ctx->streams.next; at != &ctx->streams; at = at->next) {
        CUstream stream = CONTAINER(at, struct CUstream_st, of_context);
        if (stream->view == view) {
            stream->view = NULL;
            stream->detached = true;
        }
    }
    sg_work_unlock();
}

CUresult streams_start(CUcontext ctx) {
    ctx->gathering = NULL;
    ctx->legacy = stream_new(ctx, NULL, CU_STREAM_DEFAULT, 0);
    if (!ctx->legacy) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ctx->legacy->is_legacy = true;
    return CUDA_SUCCESS;
}

void streams_end_context(CUcontext ctx) {
    while (ctx->streams.next != &ctx->streams) {
        end(CONTAINER(ctx->streams.next, struct CUstream_st, of_context));
    }
    ctx->legacy = ctx->gathering = NULL;
}

CUstream stream_gathering(CUcontext ctx) {
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&making);
    if (!ctx->gathering && (ctx->gathering = stream_new(ctx, NULL, CU_STREAM_NON_BLOCKING, 0))) {
        sg_work_lock();
        ctx->gathering->gathers = true;
        sg_work_unlock();
    }
    CUstream gathering = ctx->gathering;
    pthread_mutex_unlock(&making);
    return gathering;
}

/* The thread's own default stream in that context, made when it is first named. */
static CUstream of_thread(CUcontext ctx) {
    static _Thread_local struct {
        CUcontext ctx;
        unsigned long long id;
        CUstream stream;
    } last __attribute__((tls_model("initial-exec")));
    CUstream found = NULL;

    if (last.ctx == ctx && last.id == ctx->id && handle_is(last.stream, HANDLE_STREAM)) {
        return last.stream;
    }
    sg_work_lock();
    for (struct link *at = ctx->streams.next; at != &ctx->streams && !found; at = at->next) {
        CUstream stream = CONTAINER(at, struct CUstream_st, of_context);
        if (stream->per_thread && pthread_equal(stream->thread, pthread_self())) {
            found = stream;
        }
    }
    sg_work_unlock();
    if (!found && (found = stream_new(ctx, NULL, CU_STREAM_DEFAULT, 0)) != NULL) {
        sg_work_lock();
        found->per_thread = true;
        found->thread = pthread_self();
        sg_work_unlock();
    }
    last.ctx = ctx;
    last.id = ctx->id;
    last.stream = found;
    return found;
}

CUresult sg_stream(CUstream handle, bool ptds, const char *name, CUstream *out) {
    CUcontext ctx;

    if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
        SG_TRY(sg_ready());
        SG_REQUIRE(handle_given(handle, HANDLE_STREAM), CUDA_ERROR_INVALID_HANDLE);
        SG_REQUIRE(!handle->detached, CUDA_ERROR_STREAM_DETACHED);
        *out = handle;
        SG_TRY(__atomic_load_n(&handle->ctx->fault, __ATOMIC_RELAXED));
        return (CUresult)sg_fault_answer(&sg_driver.instance, handle->ctx->device->gpu,
                                         SG_FAULT_WORK, name);
    }
    SG_TRY(sg_enter(&ctx, SG_FAULT_WORK, name));
    if (sg_current()->of) {
        *out = sg_current()->legacy; /* a green context has one default stream */
    } else if (handle == CU_STREAM_PER_THREAD || (!handle && ptds)) {
        *out = of_thread(ctx);
    } else {
        *out = ctx->legacy;
    }
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
    SG_REQUIRE(stream, CUDA_ERROR_INVALID_VALUE);
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(!(flags & ~(unsigned)CU_STREAM_NON_BLOCKING), CUDA_ERROR_INVALID_VALUE);
    CUcontext current = sg_current();
    CUstream made = stream_new(ctx, current->of ? current : NULL, flags, priority);
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *stream = made;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
    return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    SG_REQUIRE(stream, CUDA_ERROR_INVALID_HANDLE);
    SG_READY();
    SG_REQUIRE(handle_given(stream, HANDLE_STREAM) && !stream->is_legacy && !stream->per_thread,
               CUDA_ERROR_INVALID_HANDLE);
    /* Work continues after the handle is destroyed; waits only for what is not issued yet. */
    sg_work_lock();
    bool waits = stream->first != NULL;
    sg_work_unlock();
    if (waits) {
        sg_drain(stream);
    }
    capture_abandon(stream);
    end(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
    return cuStreamDestroy_v2(stream);
}

static CUresult query(CUstream handle, bool ptds) {
    SG_STREAM(stream, handle, ptds);
    SG_TRY(capture_blocks(stream));
    return sg_stream_done(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamQuery(CUstream stream) {
    return query(stream, false);
}

CUresult cuStreamQuery_ptsz(CUstream stream) {
    return query(stream, true);
}

static CUresult synchronize(CUstream handle, bool ptds) {
    SG_STREAM(stream, handle, ptds);
    SG_TRY(capture_blocks(stream));
    return sg_drain(stream);
}

CUresult cuStreamSynchronize(CUstream stream) {
    return synchronize(stream, false);
}

CUresult cuStreamSynchronize_ptsz(CUstream stream) {
    return synchronize(stream, true);
}

/* An entry `name(stream, type *value)` in both forms, whose value is an expression over
   `stream`. */
#define STREAM_GETTER(name, type, expression)                                                      \
    static CUresult get_##name(CUstream handle, type *value, bool ptds) {                          \
        SG_REQUIRE(value, CUDA_ERROR_INVALID_VALUE);                                               \
        SG_STREAM(stream, handle, ptds);                                                           \
        *value = expression;                                                                       \
        return CUDA_SUCCESS;                                                                       \
    }                                                                                              \
    CUresult name(CUstream stream, type *value) {                                                  \
        return get_##name(stream, value, false);                                                   \
    }                                                                                              \
    CUresult name##_ptsz(CUstream stream, type *value) {                                           \
        return get_##name(stream, value, true);                                                    \
    }

STREAM_GETTER(cuStreamGetFlags, unsigned int, stream->flags)
STREAM_GETTER(cuStreamGetPriority, int, stream->priority)
STREAM_GETTER(cuStreamGetId, unsigned long long, stream->id)
STREAM_GETTER(cuStreamGetCtx, CUcontext, stream->view ? stream->view : stream->ctx)
STREAM_GETTER(cuStreamGetDevice, CUdevice, stream->ctx->device->ordinal)

static CUresult get_ctx_v2(CUstream handle, CUcontext *ctx, CUgreenCtx *green, bool ptds) {
    SG_REQUIRE(ctx && green, CUDA_ERROR_INVALID_VALUE);
    SG_STREAM(stream, handle, ptds);
    *ctx = stream->ctx;
    *green = stream->view ? stream->view->green : NULL;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *ctx, CUgreenCtx *green) {
    return get_ctx_v2(stream, ctx, green, false);
}

CUresult cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext *ctx, CUgreenCtx *green) {
    return get_ctx_v2(stream, ctx, green, true);
}

/* Attributes are hints for caches and scheduling; only the priority is kept. */
static CUresult set_attribute(CUstream handle, CUstreamAttrID id, const CUstreamAttrValue *value,
                              bool ptds) {
    SG_STREAM(stream, handle, ptds);
    SG_REQUIRE(value, CUDA_ERROR_INVALID_VALUE);
    if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        stream->priority = value->priority;
    }
    return CUDA_SUCCESS;
}

CUresult cuStreamSetAttribute(CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value) {
    return set_attribute(stream, id, value, false);
}

CUresult cuStreamSetAttribute_ptsz(CUstream stream, CUstreamAttrID id,
                                   const CUstreamAttrValue *value) {
    return set_attribute(stream, id, value, true);
}

static CUresult get_attribute(CUstream handle, CUstreamAttrID id, CUstreamAttrValue *value,
                              bool ptds) {
    SG_STREAM(stream, handle, ptds);
    SG_REQUIRE(value, CUDA_ERROR_INVALID_VALUE);
    memset(value, 0, sizeof *value);
    if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        value->priority = stream->priority;
    }
    return CUDA_SUCCESS;
}

CUresult cuStreamGetAttribute(CUstream stream, CUstreamAttrID id, CUstreamAttrValue *value) {
    return get_attribute(stream, id, value, false);
}

CUresult cuStreamGetAttribute_ptsz(CUstream stream, CUstreamAttrID id, CUstreamAttrValue *value) {
    return get_attribute(stream, id, value, true);
}

static CUresult copy_attributes(CUstream to, CUstream from, bool ptds) {
    SG_STREAM(target, to, ptds);
    SG_STREAM(source, from, ptds);
    target->priority = source->priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamCopyAttributes(CUstream to, CUstream from) {
    return copy_attributes(to, from, false);
}

CUresult cuStreamCopyAttributes_ptsz(CUstream to, CUstream from) {
    return copy_attributes(to, from, true);
}
