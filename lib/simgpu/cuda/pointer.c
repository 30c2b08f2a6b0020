/* What a pointer is. */
#include "abi/cuda/pointers.h"
#include "simgpu/cuda/pool.h"
#include "simgpu/cuda/touch.h"

#include <string.h>

/* The facts about an address, gathered under the memory lock. */
struct facts {
    CUmemorytype type; /* 0: unknown to the driver */
    CUcontext ctx;
    struct device *device;
    CUdeviceptr base;
    uint64_t bytes;
    bool managed, mapped, ipc_capable;
    unsigned long long id;
    CUmemoryPool pool;
    unsigned handle_types;
};

static void look_at_range(CUdeviceptr address, const struct range *range, struct facts *f) {
    f->type = CU_MEMORYTYPE_DEVICE;
    f->ctx = range->ctx;
    f->device = range->device;
    f->base = range->base;
    f->bytes = range->kind == RANGE_RESERVED ? range->size : range->requested;
    f->id = range->id;
    f->mapped = true;
    f->ipc_capable = range->kind == RANGE_SMALL || range->kind == RANGE_OWN;
    if (range->region && !heap_find(range->region, address, &f->base, &f->bytes)) {
        f->type = 0;
    }
    if (range->kind == RANGE_RESERVED) {
        const struct page *page = page_of(address);
        f->mapped = page->physical != NULL;
        f->device = f->mapped ? sg_device_of_gpu(page->gpu) : NULL;
    }
    if (range->kind == RANGE_CHUNK || range->kind == RANGE_IMPORT) {
        f->pool = handle_is(range->pool, HANDLE_POOL) ? range->pool : NULL;
    }
    if (f->pool) {
        f->handle_types = (unsigned)f->pool->props.handleTypes;
    }
}

static struct facts look(CUdeviceptr address) {
    struct facts f = {0};

    sg_memory_lock();
    const struct range *range = range_of(address);
    const struct host_range *host = range ? NULL : host_of((uintptr_t)address);
    if (range) {
        look_at_range(address, range, &f);
    } else if (host) {
        f = (struct facts){.type = host->managed ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
                           .ctx = host->ctx,
                           .device = host->device,
                           .base = host->base,
                           .bytes = host->size,
                           .managed = host->managed,
                           .mapped = true,
                           .id = host->id};
        if (host->managed && !managed_on_device(host)) {
            f.type = CU_MEMORYTYPE_HOST;
        }
    }
    sg_memory_unlock();
    return f;
}

/* How wide each value is stands here once more, beside cuda_pointer_attribute_bytes, by which the client of a remote share writes: the
 * simulated driver is a witness of its own, whose values tests hold the client's against. */
static CUresult put_int(void *data, int value) {
    memcpy(data, &value, sizeof value);
    return CUDA_SUCCESS;
}

static CUresult put_bool(void *data, bool value) {
    *(bool *)data = value;
    return CUDA_SUCCESS;
}

static CUresult put_wide(void *data, uint64_t value) {
    memcpy(data, &value, sizeof value);
    return CUDA_SUCCESS;
}

static CUresult answer(void *data, CUpointer_attribute attribute, CUdeviceptr address,
                       const struct facts *f) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return put_wide(data, (uintptr_t)f->ctx);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return put_int(data, (int)f->type);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return put_wide(data, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (f->type == CU_MEMORYTYPE_DEVICE && !f->managed) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        return put_wide(data, address);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return put_bool(data, false);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return put_wide(data, f->id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return put_bool(data, f->managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return put_int(data, f->device ? f->device->ordinal : CU_DEVICE_INVALID);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return put_bool(data, f->ipc_capable);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return put_wide(data, f->base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return put_wide(data, f->bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return put_bool(data, f->mapped);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return put_wide(data, f->handle_types);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return put_int(data, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return put_wide(data, (uintptr_t)f->pool);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        break;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    SG_READY();
    SG_REQUIRE(data, CUDA_ERROR_INVALID_VALUE);
    struct facts f = look(address);
    SG_REQUIRE(f.type, CUDA_ERROR_INVALID_VALUE);
    return answer(data, attribute, address, &f);
}

/* Unlike cuPointerGetAttribute this answers for any pointer: attributes that do not apply are zero,
 * or an invalid ordinal. */
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr address) {
    SG_READY();
    SG_REQUIRE(attributes && data && count, CUDA_ERROR_INVALID_VALUE);
    struct facts f = look(address);
    for (unsigned i = 0; i < count; i++) {
        SG_REQUIRE(attributes[i] >= 1 &&
                       attributes[i] <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE,
                   CUDA_ERROR_INVALID_VALUE);
        if (f.type && answer(data[i], attributes[i], address, &f) == CUDA_SUCCESS) {
            continue;
        }
        memset(data[i], 0, cuda_pointer_attribute_bytes(attributes[i]));
        if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
            put_int(data[i], CU_DEVICE_INVALID);
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                               CUdeviceptr address) {
    SG_READY();
    SG_REQUIRE(value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUDA_ERROR_INVALID_VALUE);
    struct facts f = look(address);
    return f.type == CU_MEMORYTYPE_DEVICE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    SG_REQUIRE(base || bytes, CUDA_SUCCESS);
    SG_ENTER(ctx, SG_FAULT_OTHER)
    struct facts f = look(address);
    SG_REQUIRE(f.type, CUDA_ERROR_NOT_FOUND);
    if (base) {
        *base = f.base;
    }
    if (bytes) {
        *bytes = f.bytes;
    }
    return CUDA_SUCCESS;
}
