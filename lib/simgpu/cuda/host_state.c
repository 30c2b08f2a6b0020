/* Which host memory the device may use, and what of managed memory is resident on a device. */
#define _GNU_SOURCE
#include "simgpu/cuda/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* All such memory of the process, sorted by address. */
static struct {
    struct host_range *ranges;
    size_t count, room;
} known;

/* The first range that ends behind the address. */
static size_t position_of(uintptr_t address) {
    size_t low = 0, high = known.count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (known.ranges[middle].base + known.ranges[middle].size <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct host_range *host_of(uintptr_t address) {
    size_t at = position_of(address);

    return at < known.count && known.ranges[at].base <= address ? &known.ranges[at] : NULL;
}

CUresult host_add(const struct host_range *range) {
    size_t at = position_of(range->base);

    if (at < known.count && known.ranges[at].base < range->base + range->size) {
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    if (known.count == known.room) {
        size_t room = known.room ? known.room * 2 : 32;
        struct host_range *ranges = realloc(known.ranges, room * sizeof *ranges);
        if (!ranges) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        known.ranges = ranges;
        known.room = room;
    }
    memmove(&known.ranges[at + 1], &known.ranges[at], (known.count - at) * sizeof *known.ranges);
    known.ranges[at] = *range;
    known.ranges[at].id = sg_new_id();
    known.count++;
    return CUDA_SUCCESS;
}

void host_remove(uintptr_t base) {
    size_t at = position_of(base);

    known.count--;
    memmove(&known.ranges[at], &known.ranges[at + 1], (known.count - at) * sizeof *known.ranges);
}

static uint64_t pieces(const struct host_range *host) {
    return 1 + (host->size - 1) / SG_BLOCK_BYTES;
}

void managed_evict(struct host_range *host) {
    for (uint64_t i = 0; host->blocks && i < pieces(host); i++) {
        if (host->blocks[i]) {
            uint32_t number = host->blocks[i] - 1;
            blocks_return(host->resident, 1, &number);
        }
    }
    free(host->blocks);
    host->blocks = NULL;
    host->resident = NULL;
}

/* Pages without room on the device stay on the host: managed memory may be larger than the
   device. */
void managed_touch(struct device *device, CUdeviceptr address, uint64_t bytes) {
    struct host_range *host = host_of((uintptr_t)address);

    if (!host || !host->managed || bytes == 0) {
        return;
    }
    if (host->resident != device) {
        managed_evict(host);
    }
    if (!host->blocks && !(host->blocks = calloc(pieces(host), sizeof *host->blocks))) {
        return;
    }
    host->resident = device;
    uint64_t first = (address - host->base) / SG_BLOCK_BYTES;
    uint64_t last = (address - host->base + bytes - 1) / SG_BLOCK_BYTES;
    for (uint64_t i = first; i <= last && i < pieces(host); i++) {
        uint32_t number;
        if (host->blocks[i]) {
            continue;
        }
        if (blocks_take(device, SG_MANAGED, 1, &number) != CUDA_SUCCESS) {
            return;
        }
        host->blocks[i] = number + 1;
    }
}

void host_end_context(CUcontext ctx) {
    for (size_t i = 0; i < known.count;) {
        struct host_range *range = &known.ranges[i];
        if (range->ctx != ctx) {
            i++;
            continue;
        }
        if (range->managed) {
            managed_evict(range);
        }
        if (!range->registered) {
            munmap((void *)range->base, range->size);
        }
        host_remove(range->base);
    }
}
