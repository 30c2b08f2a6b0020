/* One-dimensional copies. */
#include "simgpu/cuda/copy.h"

/* A synchronous copy may not be given while a stream that the default stream waits for is
   captured. */
CUresult copy_give(const struct copy *copy, CUstream handle, enum copy_way way, const char *name) {
    SG_GATE();
    CUstream stream;
    bool sync = way == COPY_SYNC || way == COPY_SYNC_PTDS;

    SG_TRY(sg_stream(sync ? NULL : handle, way == COPY_SYNC_PTDS || way == COPY_ASYNC_PTSZ, name,
                     &stream));
    if (sync) {
        SG_TRY(capture_allows(stream->ctx));
    }
    SG_TRY(sg_enqueue(stream, &(struct stream_op){.kind = OP_COPY, .copy = *copy}));
    return sync ? sg_drain(stream) : CUDA_SUCCESS;
}

CUresult copy_row(struct placement to, struct placement from, size_t bytes, CUstream handle,
                  enum copy_way way, const char *name) {
    to.pitch = to.slice = from.pitch = from.slice = bytes;
    return copy_give(
        &(struct copy){.to = to, .from = from, .width = bytes, .height = 1, .depth = 1}, handle,
        way, name);
}

/* The four forms of a function: synchronous with and without the thread's own default stream, and
 * with a stream, likewise. PARAMS are the parameters in parentheses without the stream. */
#define SYNC(name, PARAMS, to, from, bytes)                                                        \
    CUresult name PARAMS {                                                                         \
        return copy_row(to, from, bytes, NULL, COPY_SYNC, __func__);                               \
    }                                                                                              \
    CUresult name##_ptds PARAMS {                                                                  \
        return copy_row(to, from, bytes, NULL, COPY_SYNC_PTDS, __func__);                          \
    }

#define OPEN(...) __VA_ARGS__, CUstream stream

#define ASYNC(name, PARAMS, to, from, bytes)                                                       \
    CUresult name(OPEN PARAMS) {                                                                   \
        return copy_row(to, from, bytes, stream, COPY_ASYNC, __func__);                            \
    }                                                                                              \
    CUresult name##_ptsz(OPEN PARAMS) {                                                            \
        return copy_row(to, from, bytes, stream, COPY_ASYNC_PTSZ, __func__);                       \
    }

SYNC(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t n), place_unified(to), place_unified(from),
     n)
ASYNC(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t n), place_unified(to),
      place_unified(from), n)
SYNC(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t n), place_device(to),
     place_host(from), n)
ASYNC(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t n), place_device(to),
      place_host(from), n)
SYNC(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t n), place_host(to), place_device(from), n)
ASYNC(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t n), place_host(to),
      place_device(from), n)
SYNC(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t n), place_device(to),
     place_device(from), n)
ASYNC(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t n), place_device(to),
      place_device(from), n)
SYNC(cuMemcpyDtoA_v2, (CUarray to, size_t at, CUdeviceptr from, size_t n), place_array(to, at),
     place_device(from), n)
SYNC(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, size_t at, size_t n), place_device(to),
     place_array(from, at), n)
SYNC(cuMemcpyHtoA_v2, (CUarray to, size_t at, const void *from, size_t n), place_array(to, at),
     place_host(from), n)
ASYNC(cuMemcpyHtoAAsync_v2, (CUarray to, size_t at, const void *from, size_t n),
      place_array(to, at), place_host(from), n)
SYNC(cuMemcpyAtoH_v2, (void *to, CUarray from, size_t at, size_t n), place_host(to),
     place_array(from, at), n)
ASYNC(cuMemcpyAtoHAsync_v2, (void *to, CUarray from, size_t at, size_t n), place_host(to),
      place_array(from, at), n)
SYNC(cuMemcpyAtoA_v2, (CUarray to, size_t at, CUarray from, size_t there, size_t n),
     place_array(to, at), place_array(from, there), n)

static CUresult peer(CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx,
                     size_t n, CUstream stream, enum copy_way way, const char *name) {
    SG_READY();
    SG_REQUIRE(sg_context_given(to_ctx) && sg_context_given(from_ctx), CUDA_ERROR_INVALID_CONTEXT);
    return copy_row(place_device(to), place_device(from), n, stream, way, name);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx,
                      size_t n) {
    return peer(to, to_ctx, from, from_ctx, n, NULL, COPY_SYNC, __func__);
}

CUresult cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx,
                           size_t n) {
    return peer(to, to_ctx, from, from_ctx, n, NULL, COPY_SYNC_PTDS, __func__);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx,
                           size_t n, CUstream stream) {
    return peer(to, to_ctx, from, from_ctx, n, stream, COPY_ASYNC, __func__);
}

CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from,
                                CUcontext from_ctx, size_t n, CUstream stream) {
    return peer(to, to_ctx, from, from_ctx, n, stream, COPY_ASYNC_PTSZ, __func__);
}
