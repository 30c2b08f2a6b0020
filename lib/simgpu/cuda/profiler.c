/* Profilers are told when to look; there is nothing for them to see. */
#include "simgpu/cuda/driver.h"

CUresult cuProfilerInitialize(const char *config, const char *output, int mode) {
    (void)config, (void)output, (void)mode;
    SG_READY();
    return CUDA_ERROR_PROFILER_DISABLED;
}

CUresult cuProfilerStart(void) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    return CUDA_SUCCESS;
}

CUresult cuProfilerStop(void) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    return CUDA_SUCCESS;
}
