/* Memory pools: how they grow, and when they shrink.
 *
 * A pool grows by chunks of 32 MiB, or of what is missing when no more is to be had or more is
 * asked for. It gives empty chunks back when a stream, event or context is synchronised and more
 * than the release threshold is reserved, and by cuMemPoolTrimTo. */
#include "simgpu/cuda/pool.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK (UINT64_C(32) << 20)
#define SMALL_MAX (CHUNK / 2) /* larger requests come from regions with grains of a whole block */

CUmemoryPool pool_new(struct device *device, const CUmemPoolProps *props) {
    CUmemoryPool pool = handle_new(HANDLE_POOL, sizeof *pool);

    if (!pool) {
        return NULL;
    }
    pool->device = device;
    pool->props = *props;
    for (int i = 0; i < 3; i++) {
        pool->reuse[i] = 1;
    }
    pool->access[device->ordinal] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    pool->small = heap_new(SG_GRANULE);
    pool->large = heap_new(SG_BLOCK_BYTES);
    link_init(&pool->ranges);
    link_add(&device->pools, &pool->of_device);
    return pool;
}

CUresult pools_start(struct device *device) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal}};

    link_init(&device->pools);
    device->default_pool = pool_new(device, &props);
    if (!device->default_pool) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    device->default_pool->is_default = true;
    device->current_pool = device->default_pool;
    return CUDA_SUCCESS;
}

uint64_t pool_reserved(CUmemoryPool pool) {
    return pool->reserved;
}

/* Read without the lock by whoever synchronises. */
static void count_loose(CUmemoryPool pool, int change) {
    __atomic_add_fetch(&pool->device->loose, change, __ATOMIC_RELAXED);
}

static CUresult add_chunk(CUmemoryPool pool, uint64_t size, struct heap *heap) {
    struct range *range;
    uint64_t most = pool->props.maxSize;

    if (most && pool->reserved + size > most) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    SG_TRY(range_new(pool->device, NULL, RANGE_CHUNK, SG_POOL, size, &range));
    range->pool = pool;
    range->region = heap_add(heap, range->base, range->size);
    if (!range->region) {
        range_end(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->region->range = range;
    link_add(&pool->ranges, &range->of_context);
    pool->reserved += range->size;
    if (pool->reserved > pool->reserved_high) {
        pool->reserved_high = pool->reserved;
    }
    count_loose(pool, 1);
    return CUDA_SUCCESS;
}

static CUresult grow(CUmemoryPool pool, uint64_t bytes, struct heap *heap) {
    uint64_t need = (bytes + SG_BLOCK_BYTES - 1) / SG_BLOCK_BYTES * SG_BLOCK_BYTES;

    if (need < CHUNK && add_chunk(pool, CHUNK, heap) == CUDA_SUCCESS) {
        return CUDA_SUCCESS;
    }
    if (add_chunk(pool, need, heap) == CUDA_SUCCESS) {
        return CUDA_SUCCESS;
    }
    /* Before memory runs out, other pools of the process give back what they keep unused. */
    for (struct link *at = pool->device->pools.next; at != &pool->device->pools; at = at->next) {
        pool_trim(CONTAINER(at, struct CUmemPoolHandle_st, of_device), 0);
    }
    return add_chunk(pool, need, heap);
}

CUresult pool_take(CUmemoryPool pool, uint64_t bytes, CUdeviceptr *out) {
    struct heap *heap = bytes <= SMALL_MAX ? pool->small : pool->large;
    struct region *region;

    if (pool->imported) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    if (bytes > (UINT64_C(1) << 46)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUdeviceptr address = heap_take(heap, bytes, &region);
    if (!address) {
        SG_TRY(grow(pool, bytes, heap));
        if (!(address = heap_take(heap, bytes, &region))) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (region->live++ == 0) {
        count_loose(pool, -1);
    }
    pool->used += bytes;
    if (pool->used > pool->used_high) {
        pool->used_high = pool->used;
    }
    *out = address;
    return CUDA_SUCCESS;
}

static void end_chunk(CUmemoryPool pool, struct range *chunk) {
    pool->reserved -= chunk->size;
    count_loose(pool, -1);
    range_end(chunk);
}

void pool_trim(CUmemoryPool pool, uint64_t keep) {
    for (struct link *at = pool->ranges.next, *next; at != &pool->ranges; at = next) {
        struct range *chunk = CONTAINER(at, struct range, of_context);
        next = at->next;
        if (pool->reserved <= keep) {
            return;
        }
        if (chunk->region && chunk->region->used == 0) {
            end_chunk(pool, chunk);
        }
    }
}

static void finish(CUmemoryPool pool) {
    pool_trim(pool, 0);
    link_remove(&pool->of_device);
    heap_end(pool->small);
    heap_end(pool->large);
    free(pool);
}

CUresult pool_give(struct range *chunk, CUdeviceptr address) {
    CUmemoryPool pool = chunk->pool;
    uint64_t bytes = heap_bytes(chunk->region, address);

    if (!bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    heap_give(chunk->region, address);
    pool->used -= bytes;
    if (--chunk->region->live == 0) {
        count_loose(pool, 1);
    }
    if (pool->ended && pool->used == 0) {
        finish(pool);
    }
    return CUDA_SUCCESS;
}

void pools_synchronised(struct device *device) {
    if (__atomic_load_n(&device->loose, __ATOMIC_RELAXED) == 0) {
        return;
    }
    sg_memory_lock();
    for (struct link *at = device->pools.next; at != &device->pools; at = at->next) {
        CUmemoryPool pool = CONTAINER(at, struct CUmemPoolHandle_st, of_device);
        pool_trim(pool, pool->threshold);
    }
    sg_memory_unlock();
}

CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props) {
    SG_READY();
    SG_REQUIRE(out && props && props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED,
               CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(props->handleTypes == CU_MEM_HANDLE_TYPE_NONE ||
                   props->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
               CUDA_ERROR_NOT_SUPPORTED);
    SG_REQUIRE(props->location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
    struct device *device = sg_device(props->location.id);
    SG_REQUIRE(device, CUDA_ERROR_INVALID_DEVICE);
    sg_memory_lock();
    CUmemoryPool pool = pool_new(device, props);
    sg_memory_unlock();
    if (!pool) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = pool;
    return CUDA_SUCCESS;
}

/* Pointers of the pool stay valid; their memory goes when the last is freed. The structure of a
 * pool that outlives its handle is no longer a handle, so it is replaced. */
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    SG_READY();
    SG_REQUIRE(handle_given(pool, HANDLE_POOL) && !pool->is_default, CUDA_ERROR_INVALID_VALUE);
    CUmemoryPool rest = malloc(sizeof *rest);
    if (!rest) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sg_memory_lock();
    struct device *device = pool->device;
    if (device->current_pool == pool) {
        device->current_pool = device->default_pool;
    }
    pool_trim(pool, 0);
    *rest = *pool;
    rest->handle.mark = HANDLE_NONE;
    rest->ended = true;
    rest->threshold = 0;
    link_remove(&pool->of_device);
    link_add(&device->pools, &rest->of_device);
    link_init(&rest->ranges);
    while (pool->ranges.next != &pool->ranges) {
        struct range *chunk = CONTAINER(pool->ranges.next, struct range, of_context);
        link_remove(&chunk->of_context);
        link_add(&rest->ranges, &chunk->of_context);
        chunk->pool = rest;
    }
    handle_end(pool, HANDLE_POOL);
    if (rest->used == 0) {
        finish(rest);
    }
    sg_memory_unlock();
    return CUDA_SUCCESS;
}
