/* Managed memory of this process: which chunks of the machine's table its ranges are. Contents always stay in host memory, so
 * that the CPU can use the pointer; where they would be on a machine with GPUs, the table tells. */
#define _GNU_SOURCE
#include "simgpu/cuda/touch.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned ranges; /* of this process; atomic */

bool managed_any(void) {
    return __atomic_load_n(&ranges, __ATOMIC_ACQUIRE) != 0;
}

CUresult managed_begin(struct host_range *host) {
    struct sg_instance *in = &sg_driver.instance;
    uint64_t chunks = 1 + (host->size - 1) / SG_BLOCK_BYTES;

    host->known = chunks <= SG_CHUNKS_MAX ? calloc(chunks, 1) : NULL;
    if (!host->known) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    host->chunks = (uint32_t)chunks;
    sg_state_lock(in);
    int result = sg_chunks_take(in, host->chunks, &host->first);
    sg_state_unlock(in);
    if (result != 0) {
        free(host->known);
        host->known = NULL;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    __atomic_add_fetch(&ranges, 1, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

void managed_end(struct host_range *host) {
    sg_chunks_return(&sg_driver.instance, host->first, host->chunks);
    free(host->known);
    host->known = NULL;
    __atomic_sub_fetch(&ranges, 1, __ATOMIC_RELEASE);
}

struct host_range *managed_of(CUdeviceptr address, uint64_t bytes) {
    struct host_range *host = host_of((uintptr_t)address);

    return host && host->managed && bytes && bytes <= host->base + host->size - address ? host
                                                                                        : NULL;
}

/* The program may have filled a chunk that no work used yet: then host memory has pages for it. */
static bool filled(const struct host_range *host, uint32_t chunk) {
    unsigned char present[SG_BLOCK_BYTES / 4096];
    uint64_t at = chunk * SG_BLOCK_BYTES, page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t bytes = host->size - at < SG_BLOCK_BYTES ? host->size - at : SG_BLOCK_BYTES;

    if (mincore((void *)(host->base + at), bytes, present) != 0) {
        return false;
    }
    for (uint64_t i = 0; i < (bytes + page - 1) / page; i++) {
        if (present[i] & 1) {
            return true;
        }
    }
    return false;
}

static void look(struct host_range *host, uint32_t first, uint32_t count) {
    for (uint32_t i = first; i < first + count; i++) {
        if (!host->known[i]) {
            host->known[i] = 1;
            if (filled(host, i)) {
                sg_chunks_host(&sg_driver.instance, host->first + i, 1, true);
            }
        }
    }
}

bool managed_area(CUdeviceptr address, uint64_t bytes, struct sg_touch *area) {
    struct host_range *host = managed_of(address, bytes);

    if (!host) {
        return false;
    }
    uint32_t first = (uint32_t)((address - host->base) / SG_BLOCK_BYTES);
    uint32_t last = (uint32_t)((address - host->base + bytes - 1) / SG_BLOCK_BYTES);
    look(host, first, last - first + 1);
    *area = (struct sg_touch){.first = host->first + first, .chunks = last - first + 1};
    return true;
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
        }
        if (!range->registered) {
            munmap((void *)range->base, range->size);
        }
        host_remove(range->base);
    }
}
