/* Which host memory the device may use. */
#define _GNU_SOURCE
#include "simgpu/cuda/memory.h"

#include <stdlib.h>
#include <string.h>

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

struct host_range *host_of_context(CUcontext ctx) {
    size_t i = 0;

    while (i < known.count && known.ranges[i].ctx != ctx) {
        i++;
    }
    return i < known.count ? &known.ranges[i] : NULL;
}
