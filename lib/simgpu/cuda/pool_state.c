/* What pools tell and take, and allocation in the order of a stream. */
#include "simgpu/cuda/pool.h"

#include <string.h>

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    SG_READY();
    SG_REQUIRE(handle_given(pool, HANDLE_POOL), CUDA_ERROR_INVALID_VALUE);
    sg_memory_lock();
    pool_trim(pool, keep);
    sg_memory_unlock();
    return CUDA_SUCCESS;
}

static CUresult set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value) {
    cuuint64_t wide = 0;
    int narrow;

    memcpy(&narrow, value, sizeof narrow);
    if (attribute >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        memcpy(&wide, value, sizeof wide);
    }
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->reuse[attribute - 1] = narrow;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold = wide;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        SG_REQUIRE(wide == 0, CUDA_ERROR_INVALID_VALUE);
        pool->reserved_high = pool->reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        SG_REQUIRE(wide == 0, CUDA_ERROR_INVALID_VALUE);
        pool->used_high = pool->used;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    SG_READY();
    SG_REQUIRE(handle_given(pool, HANDLE_POOL) && value, CUDA_ERROR_INVALID_VALUE);
    sg_memory_lock();
    CUresult result = set_attribute(pool, attribute, value);
    sg_memory_unlock();
    return result;
}

static bool wide_attribute(const struct CUmemPoolHandle_st *pool, CUmemPool_attribute attribute,
                           cuuint64_t *value) {
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *value = pool->threshold;
        return true;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *value = pool->reserved;
        return true;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *value = pool->reserved_high;
        return true;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *value = pool->used;
        return true;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *value = pool->used_high;
        return true;
    case CU_MEMPOOL_ATTR_MAX_POOL_SIZE:
        *value = pool->props.maxSize;
        return true;
    default:
        return false;
    }
}

static CUresult narrow_attribute(const struct CUmemPoolHandle_st *pool,
                                 CUmemPool_attribute attribute, int *value) {
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *value = pool->reuse[attribute - 1];
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_ALLOCATION_TYPE:
        *value = (int)pool->props.allocType;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES:
        *value = (int)pool->props.handleTypes;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_LOCATION_ID:
        *value = pool->props.location.id;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_LOCATION_TYPE:
        *value = (int)pool->props.location.type;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED:
        *value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    CUresult result = CUDA_SUCCESS;
    cuuint64_t wide;
    int narrow = 0;

    SG_READY();
    SG_REQUIRE(handle_given(pool, HANDLE_POOL) && value, CUDA_ERROR_INVALID_VALUE);
    sg_memory_lock();
    bool is_wide = wide_attribute(pool, attribute, &wide);
    if (!is_wide) {
        result = narrow_attribute(pool, attribute, &narrow);
    }
    sg_memory_unlock();
    if (is_wide) {
        memcpy(value, &wide, sizeof wide);
    } else if (result == CUDA_SUCCESS) {
        memcpy(value, &narrow, sizeof narrow);
    }
    return result;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *list, size_t count) {
    SG_READY();
    SG_REQUIRE(handle_given(pool, HANDLE_POOL) && (list || count == 0), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        SG_REQUIRE(list[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_INVALID_VALUE);
        struct device *device = sg_device(list[i].location.id);
        SG_REQUIRE(device, CUDA_ERROR_INVALID_DEVICE);
        /* The pool's own device always has access. */
        SG_REQUIRE(device != pool->device || list[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                   CUDA_ERROR_INVALID_VALUE);
        SG_REQUIRE(device == pool->device || sg_can_access(device->gpu, pool->device->gpu),
                   CUDA_ERROR_INVALID_DEVICE);
        pool->access[device->ordinal] = list[i].flags;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location) {
    SG_READY();
    SG_REQUIRE(flags && handle_given(pool, HANDLE_POOL) && location &&
                   location->type == CU_MEM_LOCATION_TYPE_DEVICE,
               CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(sg_device(location->id), CUDA_ERROR_INVALID_DEVICE);
    *flags = pool->access[location->id];
    return CUDA_SUCCESS;
}

static CUresult pool_of(CUdevice ordinal, CUmemoryPool *out, bool current) {
    SG_READY();
    struct device *device = sg_device(ordinal);
    SG_REQUIRE(out, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(device, CUDA_ERROR_INVALID_DEVICE);
    *out = current ? device->current_pool : device->default_pool;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    return pool_of(device, pool, false);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
    return pool_of(device, pool, true);
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool pool) {
    SG_READY();
    struct device *device = sg_device(ordinal);
    SG_REQUIRE(device, CUDA_ERROR_INVALID_DEVICE);
    SG_REQUIRE(handle_given(pool, HANDLE_POOL) && pool->device == device && !pool->imported,
               CUDA_ERROR_INVALID_VALUE);
    device->current_pool = pool;
    return CUDA_SUCCESS;
}

static bool on_device(const CUmemLocation *location, CUmemAllocationType type) {
    return location && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
           type == CU_MEM_ALLOCATION_TYPE_PINNED;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                CUmemAllocationType type) {
    SG_REQUIRE(on_device(location, type), CUDA_ERROR_NOT_SUPPORTED);
    return pool_of(location->id, pool, false);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    SG_REQUIRE(on_device(location, type), CUDA_ERROR_NOT_SUPPORTED);
    return pool_of(location->id, pool, true);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    SG_REQUIRE(on_device(location, type), CUDA_ERROR_NOT_SUPPORTED);
    return cuDeviceSetMemPool(location->id, pool);
}

/* ---- in stream order ---- */

static CUresult alloc(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream handle, bool ptds,
                      const char *name) {
    SG_STREAM(stream, handle, ptds);
    SG_TRY((CUresult)sg_fault_answer(&sg_driver.instance, stream->ctx->device->gpu, SG_FAULT_ALLOC,
                                     name));
    SG_REQUIRE(out && bytes, CUDA_ERROR_INVALID_VALUE);
    if (!pool) {
        pool = stream->ctx->device->current_pool;
    }
    SG_REQUIRE(handle_given(pool, HANDLE_POOL), CUDA_ERROR_INVALID_VALUE);
    if (stream->capture) {
        return capture_alloc(stream, pool->device, bytes, out);
    }
    sg_burn(sg_driver.machine->alloc_ns);
    /* An operation that waits in a stream may still use memory that was freed behind it; such
     * memory is given back by its own operation, so what is free here is free for every stream. */
    sg_memory_lock();
    CUresult result = pool_take(pool, bytes, out);
    sg_memory_unlock();
    return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
    return alloc(address, bytes, NULL, stream, false, __func__);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream) {
    return alloc(address, bytes, NULL, stream, true, __func__);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
    SG_READY();
    SG_REQUIRE(pool, CUDA_ERROR_INVALID_VALUE);
    return alloc(address, bytes, pool, stream, false, __func__);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                      CUstream stream) {
    SG_READY();
    SG_REQUIRE(pool, CUDA_ERROR_INVALID_VALUE);
    return alloc(address, bytes, pool, stream, true, __func__);
}

static CUresult give(CUdeviceptr address, CUstream handle, bool ptds) {
    SG_STREAM(stream, handle, ptds);
    SG_REQUIRE(address, CUDA_ERROR_INVALID_VALUE);
    struct stream_op op = {.kind = OP_FREE, .memory = {.address = address}};
    if (stream->capture) {
        return capture_add(stream, &op);
    }
    sg_memory_lock();
    struct range *range = range_of(address);
    bool ours = range && ((range->kind == RANGE_CHUNK && heap_bytes(range->region, address)) ||
                          (range->kind == RANGE_IMPORT && range->pool) ||
                          (range->kind == RANGE_GRAPH && range->base == address) ||
                          (range->kind == RANGE_SMALL && heap_bytes(range->region, address)) ||
                          (range->kind == RANGE_OWN && range->base == address));
    sg_memory_unlock();
    SG_REQUIRE(ours, CUDA_ERROR_INVALID_VALUE);
    return sg_enqueue(stream, &op);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    return give(address, stream, false);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
    return give(address, stream, true);
}
