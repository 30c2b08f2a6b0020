/* Linear device memory: cuMemAlloc and its relatives. */
#include "simgpu/cuda/graph.h"

#include <sys/mman.h>

static CUresult add_small_block(CUcontext ctx) {
    struct range *range;
    CUresult result = range_new(ctx->device, ctx, RANGE_SMALL, SG_LINEAR, SG_BLOCK_BYTES, &range);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    range->region = heap_add(ctx->heap, range->base, range->size);
    if (!range->region) {
        range_end(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->region->range = range;
    return CUDA_SUCCESS;
}

CUresult sg_alloc(CUcontext ctx, uint64_t bytes, CUdeviceptr *out) {
    struct region *region;
    struct range *range;

    if (bytes > SG_SMALL_MAX) {
        SG_TRY(range_new(ctx->device, ctx, RANGE_OWN, SG_LINEAR, bytes, &range));
        *out = range->base;
        return CUDA_SUCCESS;
    }
    CUdeviceptr address = heap_take(ctx->heap, bytes, &region);
    if (!address) {
        SG_TRY(add_small_block(ctx));
        address = heap_take(ctx->heap, bytes, &region);
    }
    *out = address;
    return CUDA_SUCCESS;
}

static CUresult free_small(struct range *range, CUdeviceptr address) {
    if (!heap_bytes(range->region, address)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    heap_give(range->region, address);
    if (range->region->used == 0) {
        range_end(range);
    }
    return CUDA_SUCCESS;
}

static CUresult free_managed(CUdeviceptr address) {
    struct host_range *host = host_of((uintptr_t)address);

    if (!host || !host->managed || host->base != address) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t size = host->size;
    managed_evict(host);
    host_remove(host->base);
    munmap((void *)(uintptr_t)address, size);
    return CUDA_SUCCESS;
}

CUresult sg_free(CUdeviceptr address) {
    struct range *range = range_of(address);

    if (!pages_hold(address)) {
        return free_managed(address);
    }
    if (!range) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (range->kind) {
    case RANGE_SMALL:
        return free_small(range, address);
    case RANGE_CHUNK:
        return pool_give(range, address);
    case RANGE_OWN:
    case RANGE_NARROW:
        if (range->base != address) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        range_end(range);
        return CUDA_SUCCESS;
    case RANGE_IMPORT:
        if (!range->pool) {
            break;
        }
        range_end(range);
        return CUDA_SUCCESS;
    case RANGE_GRAPH:
        return range->base == address ? graph_memory_unmap(range) : CUDA_ERROR_INVALID_VALUE;
    case RANGE_RESERVED:
        break;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

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
    if (ctx && __atomic_load_n(&ctx->deferred, __ATOMIC_RELAXED)) {
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
    if (__atomic_load_n(&ctx->deferred, __ATOMIC_RELAXED)) {
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
    *free = in->state->gpus[ctx->device->gpu].free_blocks * SG_BLOCK_BYTES;
    sg_state_unlock(in);
    *total = ctx->device->model->memory_bytes - ctx->device->model->reserved_bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total) {
    size_t wide_free, wide_total;

    SG_REQUIRE(free && total, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(cuMemGetInfo_v2(&wide_free, &wide_total));
    *free = wide_free > UINT32_MAX ? UINT32_MAX : (unsigned)wide_free;
    *total = wide_total > UINT32_MAX ? UINT32_MAX : (unsigned)wide_total;
    return CUDA_SUCCESS;
}
