/* What functions answer before cuInit: first for what they look at before that, then that it is missing. The
 * order is the driver's. */
#include "simgpu/cuda/test/cuda.h"

static void check_first(void) {
    CUdeviceptr address;
    CUfunction function;
    unsigned flags;
    size_t bytes;
    int value;

    FAILS(cuCtxGetFlags(NULL), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuCtxGetFlags(&flags), CUDA_ERROR_NOT_INITIALIZED);
    FAILS(cuEventQuery(NULL), CUDA_ERROR_INVALID_HANDLE);
    FAILS(cuFuncLoad(NULL), CUDA_ERROR_INVALID_HANDLE);
    FAILS(cuGraphAddHostNode(NULL, NULL, NULL, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuStreamGetCtx(NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    /* These look at nothing before it. */
    FAILS(cuMemAlloc_v2(NULL, 0), CUDA_ERROR_NOT_INITIALIZED);
    FAILS(cuMemAlloc_v2(&address, 1), CUDA_ERROR_NOT_INITIALIZED);
    FAILS(cuModuleGetFunction(&function, NULL, "f"), CUDA_ERROR_NOT_INITIALIZED);
    FAILS(cuMemcpy2D_v2(NULL), CUDA_ERROR_NOT_INITIALIZED);
    FAILS(cuGraphAddKernelNode_v2(NULL, NULL, NULL, 0, NULL), CUDA_ERROR_NOT_INITIALIZED);
    FAILS(cuDeviceGetCount(&value), CUDA_ERROR_NOT_INITIALIZED);
    /* Without a place for an answer there is nothing to refuse. */
    OK(cuMemGetAddressRange_v2(NULL, NULL, 0));
    FAILS(cuMemGetAddressRange_v2(NULL, &bytes, 0), CUDA_ERROR_NOT_INITIALIZED);
}

/* The same of functions that are not simulated. */
static void check_unsupported(CUresult ready) {
    unsigned object = 0;

    FAILS(cuEGLStreamConsumerDisconnect((CUeglStreamConnection *)&object), ready);
    FAILS(cuCtxGetCacheConfig(NULL),
          ready == CUDA_ERROR_NOT_SUPPORTED ? CUDA_ERROR_INVALID_VALUE : ready);
    FAILS(cuGraphicsUnregisterResource(NULL), ready);
    if (ready == CUDA_ERROR_NOT_INITIALIZED) {
        FAILS(cuEGLStreamConsumerDisconnect(NULL), CUDA_ERROR_INVALID_HANDLE);
        FAILS(cuUserObjectRelease(NULL, 1), CUDA_ERROR_INVALID_VALUE);
    }
}

int main(void) {
    check_first();
    check_unsupported(CUDA_ERROR_NOT_INITIALIZED);
    cuda_start(NULL);
    check_unsupported(CUDA_ERROR_NOT_SUPPORTED);
    return 0;
}
