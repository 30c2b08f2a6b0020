/* Green contexts: whose memory they use, what their streams tell, and what is left of them. */
#include "simgpu/cuda/test/cuda.h"

static CUgreenCtx make(void) {
    uint64_t resource[18];
    CUdevResource *all = (CUdevResource *)(void *)resource;
    CUdevResourceDesc descriptor;
    CUgreenCtx green;
    OK(cuDeviceGetDevResource(0, all, (CUdevResourceType)1));
    OK(cuDevResourceGenerateDesc(&descriptor, all, 1));
    OK(cuGreenCtxCreate(&green, descriptor, 0, 1));
    return green;
}

static void check_memory(CUcontext primary) {
    CUgreenCtx green = make();
    CUcontext view, current;
    CUdeviceptr address;
    CUevent event;
    OK(cuCtxFromGreenCtx(&view, green));
    CHECK(view != primary);
    OK(cuCtxSetCurrent(view));
    OK(cuCtxGetCurrent(&current));
    CHECK(current == view);
    OK(cuMemAlloc_v2(&address, BLOCK));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuEventRecord(event, NULL));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(primary));
    uint64_t held = cuda_true(SG_LINEAR);
    OK(cuGreenCtxDestroy(green));
    CHECK_EQUAL(cuda_true(SG_LINEAR), held); /* it is the primary context's */
    OK(cuMemFree_v2(address));
    OK(cuEventDestroy_v2(event));
}

static void check_streams(CUcontext primary) {
    CUgreenCtx green = make(), told;
    CUcontext view, of;
    CUstream stream;
    OK(cuCtxFromGreenCtx(&view, green));
    FAILS(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_DEFAULT, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    OK(cuStreamGetCtx(stream, &of));
    CHECK(of == view);
    OK(cuStreamGetCtx_v2(stream, &of, &told));
    CHECK(of == primary && told == green);
    OK(cuStreamGetGreenCtx(NULL, &told));
    CHECK(told == NULL);
    OK(cuda_busy(stream, 1000));
    OK(cuStreamSynchronize(stream));
    OK(cuGreenCtxDestroy(green));
    FAILS(cuda_busy(stream, 1000), CUDA_ERROR_STREAM_DETACHED);
    FAILS(cuStreamQuery(stream), CUDA_ERROR_STREAM_DETACHED);
    OK(cuStreamDestroy_v2(stream));
}

/* It keeps the primary context. */
static void check_uses(CUcontext primary) {
    CUgreenCtx green = make();
    CUcontext view;
    OK(cuCtxFromGreenCtx(&view, green));
    FAILS(cuCtxDestroy_v2(view), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuCtxSetCurrent(view));
    OK(cuCtxSynchronize());
    OK(cuGreenCtxDestroy(green));
    OK(cuCtxSetCurrent(NULL));
    CHECK_EQUAL(cuda_true_all(), 0);
    (void)primary;
}

int main(void) {
    CUcontext primary = cuda_start(NULL);
    check_memory(primary);
    check_streams(primary);
    check_uses(primary);
    return 0;
}
