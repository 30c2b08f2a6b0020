#include "cuda/stream.h"

CUresult stream_home(CUstream stream, struct home *home) {
    CUcontext context = NULL;
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
        return context_current(home);
    }
    CUresult result = DV_CALL(cuStreamGetCtx, stream, &context);
    return result == CUDA_SUCCESS ? context_find(context, home) : result;
}

bool stream_captured(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return DV_CALL(cuStreamIsCapturing, stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool stream_captured_ptsz(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return DV_CALL(cuStreamIsCapturing_ptsz, stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}
