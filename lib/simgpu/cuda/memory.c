/* Linear device memory: cuMemAlloc and its relatives. */
#include "simgpu/cuda/driver.h"

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    SG_ENTER(ctx, SG_FAULT_ALLOC)
    SG_REQUIRE(address && bytes, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(capture_allows(ctx));
    sg_burn(sg_driver.machine->alloc_ns);
    sg_memory_lock();
    CUresult result = sg_alloc(ctx, bytes, address);
    sg_memory_unlock();
    return result;
}

/* Memory that waiting operations may still use is freed when they are done; operations that are
 * merely not finished in simulated time have had their effect already. */
static CUresult settle(CUdeviceptr address) {
    struct range *range;
    CUcontext ctx;

    sg_memory_lock();
    range = range_of(address);
    ctx = range ? range->ctx : sg_current();
    sg_memory_unlock();
    if (ctx && __atomic_load_n(&ctx->deferred, __ATOMIC_ACQUIRE)) {
        return sg_drain_context(ctx);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    if (address == 0) {
        return CUDA_SUCCESS;
    }
    SG_TRY(capture_allows(ctx));
    if (__atomic_load_n(&ctx->deferred, __ATOMIC_ACQUIRE)) {
        SG_TRY(settle(address));
    }
    sg_memory_lock();
    CUresult result = sg_free(address);
    sg_memory_unlock();
    return result;
}

/* Rows begin at multiples of 512 bytes, which suits every element size and texture. */
CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                            unsigned int element) {
    SG_ENTER(ctx, SG_FAULT_ALLOC)
    SG_REQUIRE(address && pitch && width && height, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(element == 4 || element == 8 || element == 16, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(capture_allows(ctx));
    size_t row = (width + SG_PITCH - 1) / SG_PITCH * SG_PITCH;
    SG_REQUIRE(row >= width && height <= SIZE_MAX / row, CUDA_ERROR_INVALID_VALUE);
    sg_burn(sg_driver.machine->alloc_ns);
    sg_memory_lock();
    CUresult result = sg_alloc(ctx, row * height, address);
    sg_memory_unlock();
    if (result == CUDA_SUCCESS) {
        *pitch = row;
    }
    return result;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(free && total, CUDA_ERROR_INVALID_VALUE);
    struct sg_instance *in = &sg_driver.instance;
    sg_state_lock(in);
    sg_reap(in);
    *free = sg_blocks_free(in, ctx->device->gpu) * SG_BLOCK_BYTES;
    sg_state_unlock(in);
    *total = ctx->device->model->memory_bytes - ctx->device->model->reserved_bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total) {
    size_t wide_free, wide_total;

    SG_READY();
    SG_REQUIRE(free && total, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(cuMemGetInfo_v2(&wide_free, &wide_total));
    *free = wide_free > UINT32_MAX ? UINT32_MAX : (unsigned)wide_free;
    *total = wide_total > UINT32_MAX ? UINT32_MAX : (unsigned)wide_total;
    return CUDA_SUCCESS;
}
