/* Managed memory: the calls. */
#include "simgpu/cuda/touch.h"

#include <string.h>

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags) {
    SG_REQUIRE(out && bytes, CUDA_ERROR_INVALID_VALUE);
    SG_ENTER(ctx, SG_FAULT_ALLOC)
    SG_REQUIRE((flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST),
               CUDA_ERROR_INVALID_VALUE);
    SG_TRY(capture_allows(ctx));
    size_t size = (bytes + 4095) & ~(size_t)4095;
    SG_REQUIRE(size >= bytes && size < SIZE_MAX - SG_BLOCK_BYTES, CUDA_ERROR_OUT_OF_MEMORY);
    struct host_range range = {.size = size,
                               .managed = true,
                               .ctx = ctx,
                               .device = ctx->device,
                               .attach = flags,
                               .preferred = CU_DEVICE_INVALID,
                               .last_prefetch = CU_DEVICE_INVALID};
    sg_memory_lock();
    CUresult result = managed_begin(&range);
    if (result == CUDA_SUCCESS && (result = host_add(&range)) != CUDA_SUCCESS) {
        managed_end(&range);
    }
    sg_memory_unlock();
    if (result == CUDA_SUCCESS) {
        *out = range.base;
    }
    return result;
}

/* The driver of the GPU that the memory goes to moves it. A stream of another GPU waits for that. */
static CUresult prefetch_give(CUstream stream, struct stream_op *op, int to) {
    if (to == CU_DEVICE_CPU || sg_device(to) == stream->ctx->device) {
        return sg_enqueue(stream, op);
    }
    struct touches touches = {0};
    struct sg_instance *in = &sg_driver.instance;
    touch_collect(op, &touches);
    struct sg_work work = {
        .ns = 1, .engine = SG_ON_NONE, .touches = touches.list, .touch_count = touches.count};
    op->kind = OP_WAIT;
    op->wait = (struct mark){
        .stream = stream, .stream_id = stream->id, .device = sg_device(to), .issued = true};
    op->wait.position = touches.count ? sg_submit(in, sg_device(to)->gpu, sg_time(in), &work) : 0;
    op_given(&work);
    return sg_enqueue(stream, op);
}

/* In the stream's order; nothing of it waits for the call. */
static CUresult prefetch(CUdeviceptr address, size_t bytes, int to, CUstream handle, bool ptds) {
    SG_STREAM(stream, handle, ptds);
    SG_REQUIRE(sg_device(to) || to == CU_DEVICE_CPU, CUDA_ERROR_INVALID_DEVICE);
    SG_REQUIRE(!stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    struct stream_op op = {
        .kind = OP_PREFETCH,
        .prefetch = {.address = address, .bytes = bytes, .to_host = to == CU_DEVICE_CPU}};
    sg_memory_lock();
    struct host_range *host = managed_of(address, bytes);
    if (host) {
        host->last_prefetch = to;
    }
    sg_memory_unlock();
    return host ? prefetch_give(stream, &op, to) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice to, CUstream stream) {
    return prefetch(address, bytes, to, stream, false);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr address, size_t bytes, CUdevice to, CUstream stream) {
    return prefetch(address, bytes, to, stream, true);
}

static int ordinal_of(CUmemLocation location) {
    switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return location.id;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return CU_DEVICE_CPU;
    default:
        return CU_DEVICE_INVALID;
    }
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation to,
                               unsigned int flags, CUstream stream) {
    SG_REQUIRE(to.type != CU_MEM_LOCATION_TYPE_INVALID, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
    return prefetch(address, bytes, ordinal_of(to), stream, false);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, size_t bytes, CUmemLocation to,
                                    unsigned int flags, CUstream stream) {
    SG_REQUIRE(to.type != CU_MEM_LOCATION_TYPE_INVALID, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
    return prefetch(address, bytes, ordinal_of(to), stream, true);
}

/* What changes where chunks go, and when. */
static void advise_chunks(const struct sg_touch *area, CUmem_advise advice, int device) {
    uint32_t reached = device >= 0 ? SG_CHUNK_REACHED(sg_device(device)->gpu) : 0, set = 0,
             clear = 0;

    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
        set = SG_CHUNK_READ_MOSTLY;
        break;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        clear = SG_CHUNK_READ_MOSTLY;
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        *(device == CU_DEVICE_CPU ? &set : &clear) = SG_CHUNK_AT_HOST;
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        clear = SG_CHUNK_AT_HOST;
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        set = reached;
        break;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        clear = reached;
        break;
    }
    sg_chunks_advise(&sg_driver.instance, area->first, area->chunks, set, clear);
}

static CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, int device) {
    SG_READY();
    SG_REQUIRE(device == CU_DEVICE_CPU || sg_device(device) || advice <= 2,
               CUDA_ERROR_INVALID_DEVICE);
    CUresult result = CUDA_SUCCESS;
    struct sg_touch area;
    sg_memory_lock();
    struct host_range *host = managed_of(address, bytes);
    uint64_t bit = device >= 0 ? UINT64_C(1) << device : UINT64_C(1) << 63;
    if (!host) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (advice == CU_MEM_ADVISE_SET_READ_MOSTLY ||
               advice == CU_MEM_ADVISE_UNSET_READ_MOSTLY) {
        host->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
    } else if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION) {
        host->preferred = device;
    } else if (advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION) {
        host->preferred = CU_DEVICE_INVALID;
    } else if (advice == CU_MEM_ADVISE_SET_ACCESSED_BY) {
        host->accessed_by |= bit;
    } else if (advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY) {
        host->accessed_by &= ~bit;
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS && managed_area(address, bytes, &area)) {
        advise_chunks(&area, advice, device);
    }
    sg_memory_unlock();
    return result;
}

CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device) {
    return advise(address, bytes, advice, device);
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                        CUmemLocation location) {
    SG_REQUIRE(location.type != CU_MEM_LOCATION_TYPE_INVALID, CUDA_ERROR_INVALID_VALUE);
    return advise(address, bytes, advice, ordinal_of(location));
}

CUresult cuMemRangeGetAttribute(void *data, size_t room, CUmem_range_attribute attribute,
                                CUdeviceptr address, size_t bytes) {
    int value = 0;

    SG_READY();
    SG_REQUIRE(data && room >= sizeof value && room % sizeof value == 0, CUDA_ERROR_INVALID_VALUE);
    sg_memory_lock();
    struct host_range *host = managed_of(address, bytes);
    uint64_t accessed = host ? host->accessed_by : 0;
    if (host) {
        value = attribute == CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY          ? host->read_mostly
                : attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION ? host->preferred
                                                                         : host->last_prefetch;
    }
    sg_memory_unlock();
    SG_REQUIRE(host && attribute >= 1 && attribute <= CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
               CUDA_ERROR_INVALID_VALUE);
    if (attribute != CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) {
        memcpy(data, &value, sizeof value);
        return CUDA_SUCCESS;
    }
    int *list = data;
    for (size_t i = 0, device = 0; i < room / sizeof *list; i++) {
        while (device < 64 && !(accessed >> device & 1)) {
            device++;
        }
        list[i] = device == 64 ? CU_DEVICE_INVALID : device == 63 ? CU_DEVICE_CPU : (int)device;
        device += device < 64;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttributes(void **data, size_t *rooms, CUmem_range_attribute *attributes,
                                 size_t count, CUdeviceptr address, size_t bytes) {
    SG_READY();
    SG_REQUIRE(data && rooms && attributes && count, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        SG_TRY(cuMemRangeGetAttribute(data[i], rooms[i], attributes[i], address, bytes));
    }
    return CUDA_SUCCESS;
}

/* Attachment decides which stream may use the memory. Here every stream may. */
static CUresult attach(CUstream handle, CUdeviceptr address, unsigned flags, bool ptds) {
    SG_STREAM(stream, handle, ptds);
    sg_memory_lock();
    struct host_range *host = managed_of(address, 1);
    if (host) {
        host->attach = flags;
    }
    sg_memory_unlock();
    return host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t bytes,
                                unsigned int flags) {
    (void)bytes;
    return attach(stream, address, flags, false);
}

CUresult cuStreamAttachMemAsync_ptsz(CUstream stream, CUdeviceptr address, size_t bytes,
                                     unsigned int flags) {
    (void)bytes;
    return attach(stream, address, flags, true);
}
