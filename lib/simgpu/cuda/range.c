/* Ranges of device addresses and the physical blocks behind them. */
#include "simgpu/cuda/driver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How often this process holds each object; the state says only whether it does. The memory
   lock. */
static unsigned held[SG_OBJECTS_MAX];

/* The limit of an MPS client is for what programs allocate of the device's own memory: not for contexts, nor for
 * managed memory, which is not bound to the device. The state lock. */
static bool within_limit(const struct device *device, enum sg_category category, uint32_t n) {
    const struct sg_instance *in = &sg_driver.instance;
    const uint64_t *bytes = in->state->clients[in->id].bytes[device->gpu];

    if (device->memory_limit == 0 || category == SG_CONTEXT || category == SG_MANAGED) {
        return true;
    }
    uint64_t used = sg_client_used(in, in->id, device->gpu) - bytes[SG_CONTEXT] - bytes[SG_MANAGED];
    return used + n * SG_BLOCK_BYTES <= device->memory_limit;
}

/* Memory can be used when what it displaced has left. A virtual clock may stand still until the call has returned. */
static void wait_until(uint64_t moment) {
    const struct sg_instance *in = &sg_driver.instance;
    uint64_t now;

    while (moment && !in->state->is_virtual && (now = sg_time(in)) < moment) {
        sg_clock_wait(in, moment - now, 0);
    }
}

CUresult blocks_take(struct device *device, enum sg_category category, uint32_t n,
                     uint32_t *numbers) {
    struct sg_instance *in = &sg_driver.instance;
    uint64_t displaced = 0;

    sg_state_lock(in);
    int result = n > in->state->gpus[device->gpu].block_count || !within_limit(device, category, n)
                     ? -ENOMEM
                     : sg_blocks_take(in, device->gpu, category, n, numbers);
    displaced = result == 0 ? in->displaced : 0;
    sg_state_unlock(in);
    wait_until(displaced);
    return result ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

void blocks_return(struct device *device, uint32_t n, const uint32_t *numbers) {
    struct sg_instance *in = &sg_driver.instance;

    sg_blocks_clean(in, device->gpu, n, numbers);
    sg_state_lock(in);
    sg_blocks_return(in, device->gpu, n, numbers);
    sg_state_unlock(in);
}

static void map_pages(struct range *range) {
    for (uint32_t i = 0; i < range->count; i++) {
        struct page *page = page_of(range->base + i * SG_BLOCK_BYTES);
        *page = (struct page){.range = range,
                              .gpu = (uint16_t)range->device->gpu,
                              .readers = 0xffff,
                              .writers = 0xffff};
        __atomic_store_n(&page->block, range->blocks[i] + 1, __ATOMIC_RELEASE);
    }
}

static void unmap_pages(struct range *range) {
    for (uint64_t at = 0; at < range->size; at += SG_BLOCK_BYTES) {
        struct page *page = page_of(range->base + at);
        __atomic_store_n(&page->block, 0, __ATOMIC_RELEASE);
        page->range = NULL;
    }
}

static struct range *describe(struct device *device, CUcontext ctx, enum range_kind kind,
                              uint32_t count) {
    struct range *range = calloc(1, sizeof *range);

    if (!range) {
        return NULL;
    }
    *range = (struct range){.kind = kind,
                            .size = count * SG_BLOCK_BYTES,
                            .ctx = ctx,
                            .device = device,
                            .count = count,
                            .object = -1,
                            .id = sg_new_id()};
    range->blocks = count == 1 ? &range->first : malloc(count * sizeof *range->blocks);
    link_init(&range->of_context);
    if (range->blocks) {
        range->base = kind == RANGE_NARROW ? pages_take_narrow(range->size)
                                           : pages_take(range->size, SG_BLOCK_BYTES);
    }
    if (range->base) {
        return range;
    }
    if (count != 1) {
        free(range->blocks);
    }
    free(range);
    return NULL;
}

static void forget(struct range *range) {
    pages_return(range->base, range->size);
    if (range->blocks != &range->first) {
        free(range->blocks);
    }
    free(range);
}

CUresult range_new(struct device *device, CUcontext ctx, enum range_kind kind,
                   enum sg_category category, uint64_t bytes, struct range **out) {
    uint64_t count = bytes / SG_BLOCK_BYTES + (bytes % SG_BLOCK_BYTES != 0);

    if (count > sg_driver.instance.state->gpus[device->gpu].block_count) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct range *range = describe(device, ctx, kind, (uint32_t)count);
    if (!range) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = blocks_take(device, category, range->count, range->blocks);
    if (result != CUDA_SUCCESS) {
        forget(range);
        return result;
    }
    range->requested = bytes;
    map_pages(range);
    if (ctx) {
        link_add(&ctx->ranges, &range->of_context);
    }
    *out = range;
    return CUDA_SUCCESS;
}

CUresult range_import(struct device *device, CUcontext ctx, uint32_t object, uint32_t count,
                      uint32_t *blocks, struct range **out) {
    struct range *range = describe(device, ctx, RANGE_IMPORT, count);

    if (!range) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(range->blocks, blocks, count * sizeof *blocks);
    range->object = object;
    range->opens = 1;
    map_pages(range);
    if (ctx) {
        link_add(&ctx->ranges, &range->of_context);
    }
    *out = range;
    return CUDA_SUCCESS;
}

void range_end(struct range *range) {
    link_remove(&range->of_context);
    if (range->region) {
        heap_remove(range->region);
    }
    unmap_pages(range);
    if (range->object >= 0) {
        object_drop((uint32_t)range->object);
    } else if (range->count) {
        blocks_return(range->device, range->count, range->blocks);
    }
    forget(range);
}

struct range *range_of(CUdeviceptr address) {
    struct page *page = page_of(address);

    return page ? page->range : NULL;
}

CUresult blocks_share(struct device *device, uint32_t n, const uint32_t *numbers, int64_t *object,
                      uint64_t *key) {
    struct sg_instance *in = &sg_driver.instance;
    uint32_t made = 0;
    int result = 0;

    sg_state_lock(in);
    if (*object < 0) {
        result = sg_object_create(in, device->gpu, n, numbers, n * SG_BLOCK_BYTES, &made);
        if (result == 0) {
            *object = made;
            held[made] = 1;
        }
    }
    if (result == 0) {
        *key = sg_object_key(in, (uint32_t)*object);
    }
    sg_state_unlock(in);
    return result ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

bool object_is_own(uint32_t object) {
    struct sg_instance *in = &sg_driver.instance;

    sg_state_lock(in);
    const struct sg_object *o = &in->state->objects[object];
    bool own = o->in_use && o->creator == in->id &&
               o->creator_generation == in->state->clients[in->id].generation;
    sg_state_unlock(in);
    return own;
}

CUresult object_hold(uint32_t object, uint64_t key, uint32_t *gpu, uint64_t *bytes, uint32_t *count,
                     uint32_t **blocks) {
    struct sg_instance *in = &sg_driver.instance;
    uint32_t *numbers = NULL;
    int result = -1;

    sg_state_lock(in);
    if (object < SG_OBJECTS_MAX && in->state->objects[object].in_use) {
        const struct sg_object *o = &in->state->objects[object];
        *gpu = o->gpu;
        *bytes = o->bytes;
        *count = o->blocks;
        if (o->blocks && (numbers = malloc(o->blocks * sizeof *numbers)) != NULL) {
            result = sg_object_hold(in, object, key, numbers, o->blocks);
        }
    }
    sg_state_unlock(in);
    if (result != 0) {
        free(numbers);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    held[object]++;
    *blocks = numbers;
    return CUDA_SUCCESS;
}

void object_drop(uint32_t object) {
    struct sg_instance *in = &sg_driver.instance;

    if (--held[object] > 0) {
        return;
    }
    sg_state_lock(in);
    sg_object_drop(in, object);
    sg_state_unlock(in);
}
