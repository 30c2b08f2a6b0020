/* Device addresses given out and taken back, of every kind. The memory lock is held. */
#include "simgpu/cuda/graph.h"
#include "simgpu/cuda/touch.h"

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
    managed_end(host);
    host_remove(host->base);
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
    case RANGE_CODE:
    case RANGE_RESERVED:
        break;
    }
    return CUDA_ERROR_INVALID_VALUE;
}
