/* Profilers are told when to look; there is nothing for them to see. */
#include "simgpu/cuda/driver.h"

/* Drivers of CUDA 12 do not have it any more. */
CUresult cuProfilerInitialize(const char *config, const char *output, int mode) {
    int version;

    (void)config, (void)output, (void)mode;
    SG_REQUIRE(sg_claimed_version(&version) != CUDA_SUCCESS || version < 12000,
               CUDA_ERROR_NOT_SUPPORTED);
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
