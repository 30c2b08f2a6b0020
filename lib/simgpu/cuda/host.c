/* Host memory that the device may use: page-locked, registered, managed. It costs no device
   memory. */
#define _GNU_SOURCE
#include "simgpu/cuda/driver.h"

#include <sys/mman.h>

static CUresult allocate(CUcontext ctx, void **out, size_t bytes, unsigned flags) {
    SG_REQUIRE(out && bytes, CUDA_ERROR_INVALID_VALUE);
    size_t size = (bytes + 4095) & ~(size_t)4095;
    SG_REQUIRE(size >= bytes, CUDA_ERROR_INVALID_VALUE);
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct host_range range = {
        .base = (uintptr_t)at, .size = size, .flags = flags, .ctx = ctx, .device = ctx->device};
    sg_memory_lock();
    CUresult result = host_add(&range);
    sg_memory_unlock();
    if (result == CUDA_SUCCESS) {
        *out = at;
    } else {
        munmap(at, size);
    }
    return result;
}

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned int flags) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(!(flags & ~7u), CUDA_ERROR_INVALID_VALUE);
    SG_TRY(capture_allows(ctx));
    return allocate(ctx, out, bytes, flags);
}

CUresult cuMemAllocHost_v2(void **out, size_t bytes) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_TRY(capture_allows(ctx));
    return allocate(ctx, out, bytes, 0);
}

CUresult cuMemAllocHost(void **out, unsigned int bytes) {
    return cuMemAllocHost_v2(out, bytes);
}

/* Copies that wait may still read it. */
static CUresult settle(CUcontext ctx) {
    return __atomic_load_n(&ctx->deferred, __ATOMIC_ACQUIRE) ? sg_drain_context(ctx) : CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *address) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(address, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(settle(ctx));
    sg_memory_lock();
    struct host_range *range = host_of((uintptr_t)address);
    bool ours = range && range->base == (uintptr_t)address && !range->registered && !range->managed;
    if (ours) {
        munmap(address, range->size);
        host_remove(range->base);
    }
    sg_memory_unlock();
    return ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned int flags) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(address && bytes && !(flags & ~15u) &&
                   (uintptr_t)address + bytes > (uintptr_t)address,
               CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(!pages_hold((uintptr_t)address), CUDA_ERROR_INVALID_VALUE);
    struct host_range range = {.base = (uintptr_t)address,
                               .size = bytes,
                               .flags = flags,
                               .registered = true,
                               .ctx = ctx,
                               .device = ctx->device};
    sg_memory_lock();
    CUresult result = host_add(&range);
    sg_memory_unlock();
    return result;
}

CUresult cuMemHostRegister(void *address, size_t bytes, unsigned int flags) {
    return cuMemHostRegister_v2(address, bytes, flags);
}

CUresult cuMemHostUnregister(void *address) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(address, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(settle(ctx));
    sg_memory_lock();
    struct host_range *range = host_of((uintptr_t)address);
    bool ours = range && range->registered && range->base == (uintptr_t)address;
    if (ours) {
        host_remove(range->base);
    }
    sg_memory_unlock();
    return ours ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* With unified addresses the device's pointer is the host's. */
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *address, unsigned int flags) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(out && flags == 0, CUDA_ERROR_INVALID_VALUE);
    sg_memory_lock();
    bool is_known = host_of((uintptr_t)address) != NULL;
    sg_memory_unlock();
    SG_REQUIRE(is_known, CUDA_ERROR_INVALID_VALUE);
    *out = (uintptr_t)address;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *address) {
    SG_REQUIRE(flags, CUDA_ERROR_INVALID_VALUE);
    SG_ENTER(ctx, SG_FAULT_OTHER)
    sg_memory_lock();
    struct host_range *range = host_of((uintptr_t)address);
    bool ours = range && !range->registered && !range->managed;
    if (ours) {
        *flags = range->flags | CU_MEMHOSTALLOC_DEVICEMAP;
    }
    sg_memory_unlock();
    return ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
