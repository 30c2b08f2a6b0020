/*
 * Synchronisation: the moments at which the driver takes memory back from pools, and at which frees
 * that wait for a stream are known to be done. One load each where there is nothing of the kind.
 */
#include "cuda/limbo.h"
#include "cuda/pool.h"

static CUresult stream_done(CUresult result, CUstream stream) {
    if (result == CUDA_SUCCESS && dv_depth == 0) {
        limbo_stream_done(stream);
        pools_synchronised();
    }
    return result;
}

CUresult cuStreamSynchronize(CUstream stream) {
    return stream_done(DV_CALL(cuStreamSynchronize, stream), stream);
}

/* NULL is the calling thread's own stream here. */
CUresult cuStreamSynchronize_ptsz(CUstream stream) {
    return stream_done(DV_CALL(cuStreamSynchronize_ptsz, stream),
                       stream != NULL ? stream : CU_STREAM_PER_THREAD);
}

CUresult cuCtxSynchronize(void) {
    struct place place;
    dv_depth++;
    CUresult result = DV_REAL(cuCtxSynchronize)();
    dv_depth--;
    if (result == CUDA_SUCCESS && dv_depth == 0 && context_current(&place) == CUDA_SUCCESS) {
        limbo_context_done(place.owner);
        pools_synchronised();
    }
    return result;
}

CUresult cuCtxSynchronize_v2(CUcontext context) {
    struct place place;
    CUresult result = DV_CALL(cuCtxSynchronize_v2, context);
    if (result == CUDA_SUCCESS && dv_depth == 0 && context_known(context, &place)) {
        limbo_context_done(place.owner);
        pools_synchronised();
    }
    return result;
}

CUresult cuEventSynchronize(CUevent event) {
    CUresult result = DV_CALL(cuEventSynchronize, event);
    if (result == CUDA_SUCCESS && dv_depth == 0) {
        pools_synchronised();
    }
    return result;
}

CUresult cuStreamDestroy(CUstream stream) {
    if (dv_depth == 0) {
        limbo_stream_destroyed(stream);
    }
    return DV_REAL(cuStreamDestroy)(stream);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    if (dv_depth == 0) {
        limbo_stream_destroyed(stream);
    }
    return DV_REAL(cuStreamDestroy_v2)(stream);
}
