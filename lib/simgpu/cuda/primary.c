/* Primary contexts: one per device, shared by everybody in the process, counted. */
#include "simgpu/cuda/context.h"

static pthread_mutex_t retaining = PTHREAD_MUTEX_INITIALIZER;

static CUresult activate(struct device *device) {
    CUcontext ctx = device->primary;

    if (!ctx) {
        ctx = handle_new(HANDLE_CONTEXT, sizeof *ctx);
        if (!ctx) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        ctx->is_primary = true;
        device->primary = ctx;
    }
    return context_begin(ctx, device, device->primary_flags);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice ordinal) {
    SG_READY();
    struct device *device = sg_device(ordinal);
    SG_REQUIRE(ctx, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(device, CUDA_ERROR_INVALID_DEVICE);
    SG_TRY((CUresult)sg_fault_answer(&sg_driver.instance, device->gpu, SG_FAULT_ALLOC, __func__));
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&retaining);
    if (!device->primary || !device->primary->active) {
        result = activate(device);
    }
    if (result == CUDA_SUCCESS) {
        device->primary_users++;
        *ctx = device->primary;
    }
    pthread_mutex_unlock(&retaining);
    return result;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
    SG_READY();
    struct device *device = sg_device(ordinal);
    CUresult result = CUDA_SUCCESS;

    SG_REQUIRE(device, CUDA_ERROR_INVALID_DEVICE);
    pthread_mutex_lock(&retaining);
    if (device->primary_users == 0) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else if (--device->primary_users == 0) {
        context_finish(device->primary);
    }
    pthread_mutex_unlock(&retaining);
    return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal) {
    return cuDevicePrimaryCtxRelease_v2(ordinal);
}

/* Ends the context even if it is in use; references remain to be released. */
CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
    SG_READY();
    struct device *device = sg_device(ordinal);

    SG_REQUIRE(device, CUDA_ERROR_INVALID_DEVICE);
    pthread_mutex_lock(&retaining);
    if (device->primary && device->primary->active) {
        context_finish(device->primary);
    }
    device->primary_users = 0;
    pthread_mutex_unlock(&retaining);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice ordinal) {
    return cuDevicePrimaryCtxReset_v2(ordinal);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags) {
    SG_READY();
    struct device *device = sg_device(ordinal);

    SG_REQUIRE(device, CUDA_ERROR_INVALID_DEVICE);
    SG_REQUIRE(!(flags & ~(unsigned)CU_CTX_FLAGS_MASK), CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&retaining);
    device->primary_flags = flags;
    if (device->primary && device->primary->active) {
        device->primary->flags = flags;
    }
    pthread_mutex_unlock(&retaining);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned int flags) {
    return cuDevicePrimaryCtxSetFlags_v2(ordinal, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active) {
    SG_REQUIRE(flags && active, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    struct device *device = sg_device(ordinal);

    SG_REQUIRE(device, CUDA_ERROR_INVALID_DEVICE);
    pthread_mutex_lock(&retaining);
    *flags = device->primary_flags;
    *active = device->primary && device->primary->active;
    pthread_mutex_unlock(&retaining);
    return CUDA_SUCCESS;
}
