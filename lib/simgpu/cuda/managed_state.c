/* Managed memory of this process: which chunks of the machine's table its ranges are. Contents always stay in host memory, so
 * that the CPU can use the pointer; where they would be on a machine with GPUs, the table tells. Which the program used is found
 * out before work uses them. */
#define _GNU_SOURCE
#include "simgpu/cuda/touch.h"

#include <sys/mman.h>

unsigned managed_ranges;

CUresult managed_begin(struct host_range *host) {
    struct sg_instance *in = &sg_driver.instance;
    uint64_t chunks = 1 + (host->size - 1) / SG_BLOCK_BYTES;

    if (chunks > SG_CHUNKS_MAX || !managed_map(host)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    host->chunks = (uint32_t)chunks;
    sg_state_lock(in);
    int result = sg_chunks_take(in, host->chunks, &host->first);
    sg_state_unlock(in);
    if (result != 0) {
        managed_unmap(host);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    __atomic_add_fetch(&managed_ranges, 1, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

void managed_end(struct host_range *host) {
    sg_chunks_return(&sg_driver.instance, host->first, host->chunks);
    managed_unmap(host);
    __atomic_sub_fetch(&managed_ranges, 1, __ATOMIC_RELEASE);
}

struct host_range *managed_of(CUdeviceptr address, uint64_t bytes) {
    struct host_range *host = host_of((uintptr_t)address);

    return host && host->managed && bytes && bytes <= host->base + host->size - address ? host
                                                                                        : NULL;
}

static void used_by_program(uint32_t chunk) {
    sg_chunks_host(&sg_driver.instance, chunk, 1, true);
}

bool managed_area(CUdeviceptr address, uint64_t bytes, struct sg_touch *area) {
    struct host_range *host = managed_of(address, bytes);

    if (!host) {
        return false;
    }
    uint32_t first = (uint32_t)((address - host->base) / SG_BLOCK_BYTES);
    uint32_t last = (uint32_t)((address - host->base + bytes - 1) / SG_BLOCK_BYTES);
    managed_look(host, first, last - first + 1, used_by_program);
    *area = (struct sg_touch){.first = host->first + first, .chunks = last - first + 1};
    return true;
}

void *managed_contents(uint64_t address) {
    void *at = (void *)(uintptr_t)address;

    if (managed_any()) {
        sg_memory_lock();
        const struct host_range *host = managed_of(address, 1);
        at = host ? host->contents + (address - host->base) : at;
        sg_memory_unlock();
    }
    return at;
}

bool managed_on_device(const struct host_range *host) {
    return sg_chunks_any(&sg_driver.instance, host->first, host->chunks);
}

CUresult managed_result(CUcontext ctx) {
    struct sg_instance *in = &sg_driver.instance;

    if (!managed_any() ||
        !__atomic_load_n(&sg_pager(in, in->id, ctx->device->gpu)->failed, __ATOMIC_RELAXED)) {
        return CUDA_SUCCESS;
    }
    __atomic_store_n(&ctx->fault, CUDA_ERROR_ILLEGAL_ADDRESS, __ATOMIC_RELAXED);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

void host_end_context(CUcontext ctx) {
    struct host_range *range;

    while ((range = host_of_context(ctx)) != NULL) {
        if (range->managed) {
            managed_end(range);
        } else if (!range->registered) {
            munmap((void *)range->base, range->size);
        }
        host_remove(range->base);
    }
}
