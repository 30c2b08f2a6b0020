/* Allocations of whole granules within regions of device addresses: two-level segregated fit.
 * Lengths are told beside the memory, because the memory is the device's. Taking and giving back
 * are O(1). */
#include "simgpu/cuda/driver.h"

#include <stdlib.h>
#include <string.h>

#define LEVELS 32
#define STEPS 8 /* size classes per power of two */
#define STEP_BITS 3

/* A run of granules, free or one allocation; described at the index of its first granule. The
 * descriptions of granules inside a run have length 0. */
struct run {
    uint32_t length; /* granules */
    uint32_t before; /* length of the run that ends where this one begins; 0 for the first */
    uint64_t bytes;  /* asked for; 0 when free */
    struct region *region;
    struct run *next, *prev; /* among the free of its class */
};

struct heap {
    uint64_t granule; /* bytes */
    uint32_t levels;
    uint32_t steps[LEVELS];
    struct run *free[LEVELS][STEPS];
};

/* Removed regions of as many granules as a block has, with all lengths 0. They are kept because
 * allocating their memory again would cost more than the rest of a call. */
#define COMMON_GRANULES (SG_BLOCK_BYTES / SG_GRANULE)
static struct region *recycled;

static void class_of(uint32_t length, unsigned *level, unsigned *step) {
    unsigned log = 31u - (unsigned)__builtin_clz(length);

    *level = log;
    *step = log < STEP_BITS ? (length << (STEP_BITS - log)) & (STEPS - 1)
                            : (length >> (log - STEP_BITS)) & (STEPS - 1);
}

static void insert(struct heap *heap, struct run *run) {
    unsigned level, step;

    class_of(run->length, &level, &step);
    run->prev = NULL;
    run->next = heap->free[level][step];
    if (run->next) {
        run->next->prev = run;
    }
    heap->free[level][step] = run;
    heap->levels |= 1u << level;
    heap->steps[level] |= 1u << step;
}

static void withdraw(struct heap *heap, struct run *run) {
    unsigned level, step;

    class_of(run->length, &level, &step);
    if (run->next) {
        run->next->prev = run->prev;
    }
    if (run->prev) {
        run->prev->next = run->next;
    } else if (!(heap->free[level][step] = run->next) && !(heap->steps[level] &= ~(1u << step))) {
        heap->levels &= ~(1u << level);
    }
}

/* A free run of at least that length: the next class up always fits, the own class may. */
static struct run *fitting(const struct heap *heap, uint32_t length) {
    unsigned level, step;

    class_of(length, &level, &step);
    struct run *own = heap->free[level][step];
    if (own && own->length >= length) {
        return own;
    }
    uint32_t steps = heap->steps[level] & ~((2u << step) - 1);
    if (!steps) {
        uint32_t levels = heap->levels & ~((2u << level) - 1);
        if (!levels) {
            return NULL;
        }
        level = (unsigned)__builtin_ctz(levels);
        steps = heap->steps[level];
    }
    return heap->free[level][__builtin_ctz(steps)];
}

static struct run *after(const struct run *run) {
    const struct run *next = run + run->length;

    return next == run->region->runs + run->region->granules ? NULL : (struct run *)next;
}

struct heap *heap_new(uint64_t granule) {
    struct heap *heap = calloc(1, sizeof *heap);

    if (heap) {
        heap->granule = granule;
    }
    return heap;
}

void heap_end(struct heap *heap) {
    free(heap);
}

struct region *heap_add(struct heap *heap, CUdeviceptr base, uint64_t size) {
    uint32_t granules = (uint32_t)(size / heap->granule);
    struct region *region = granules == COMMON_GRANULES ? recycled : NULL;

    if (region) {
        recycled = region->recycled;
    } else {
        if (!(region = calloc(1, sizeof *region))) {
            return NULL;
        }
        if (!(region->runs = calloc(granules, sizeof *region->runs))) {
            free(region);
            return NULL;
        }
    }
    *region =
        (struct region){.heap = heap, .base = base, .granules = granules, .runs = region->runs};
    region->runs[0] = (struct run){.length = granules, .region = region};
    insert(heap, region->runs);
    return region;
}

void heap_remove(struct region *region) {
    if (region->used == 0) {
        withdraw(region->heap, region->runs);
        region->runs[0].length = 0;
    } else {
        for (struct run *run = region->runs; run;) {
            struct run *next = after(run);
            if (run->bytes == 0) {
                withdraw(region->heap, run);
            }
            *run = (struct run){0};
            run = next;
        }
    }
    if (region->granules == COMMON_GRANULES) {
        region->recycled = recycled;
        recycled = region;
    } else {
        free(region->runs);
        free(region);
    }
}

CUdeviceptr heap_take(struct heap *heap, uint64_t bytes, struct region **out) {
    uint32_t length = (uint32_t)((bytes + heap->granule - 1) / heap->granule);
    struct run *run = fitting(heap, length);

    if (!run) {
        return 0;
    }
    struct region *region = run->region;
    withdraw(heap, run);
    if (run->length > length) {
        struct run *rest = run + length;
        *rest = (struct run){.length = run->length - length, .before = length, .region = region};
        run->length = length;
        struct run *next = after(rest);
        if (next) {
            next->before = rest->length;
        }
        insert(heap, rest);
    }
    run->bytes = bytes;
    region->used += length;
    *out = region;
    return region->base + (uint64_t)(run - region->runs) * heap->granule;
}

uint64_t heap_bytes(const struct region *region, CUdeviceptr address) {
    uint64_t granule = region->heap->granule;
    const struct run *run = region->runs + (address - region->base) / granule;

    return address % granule == 0 && run->length ? run->bytes : 0;
}

bool heap_find(const struct region *region, CUdeviceptr address, CUdeviceptr *base,
               uint64_t *bytes) {
    uint64_t granule = region->heap->granule, index = (address - region->base) / granule;

    while (region->runs[index].length == 0) {
        index--;
    }
    *base = region->base + index * granule;
    *bytes = region->runs[index].bytes;
    return *bytes != 0;
}

void heap_give(struct region *region, CUdeviceptr address) {
    struct heap *heap = region->heap;
    struct run *run = region->runs + (address - region->base) / heap->granule;
    struct run *next = after(run);

    region->used -= run->length;
    run->bytes = 0;
    if (next && next->bytes == 0) {
        withdraw(heap, next);
        run->length += next->length;
        next->length = 0;
    }
    if (run->before) {
        struct run *before = run - run->before;
        if (before->bytes == 0) {
            withdraw(heap, before);
            before->length += run->length;
            run->length = 0;
            run = before;
        }
    }
    next = after(run);
    if (next) {
        next->before = run->length;
    }
    insert(heap, run);
}
