/* Memory nodes of graphs. An address is fixed when the node is made; memory is mapped there from
 * the node's turn in a launch until it is freed. What was freed stays reserved for graphs of the
 * device until cuDeviceGraphMemTrim. */
#include "simgpu/cuda/graph.h"

#include <stdlib.h>
#include <string.h>

/* Blocks that graphs of a device hold; the memory lock. */
static struct store {
    uint32_t *spare; /* reserved, behind no address */
    size_t spare_count, spare_room;
    uint64_t reserved, reserved_high, used, used_high;
} stores[SG_GPUS_MAX];

static struct store *store_of(const struct device *device) {
    return &stores[device->ordinal];
}

static void raise(uint64_t *high, uint64_t value) {
    if (value > *high) {
        *high = value;
    }
}

CUresult graph_memory_reserve(struct device *device, uint64_t bytes, CUdeviceptr *out) {
    uint64_t count = bytes / SG_BLOCK_BYTES + (bytes % SG_BLOCK_BYTES != 0);

    SG_REQUIRE(bytes && count <= sg_driver.instance.state->gpus[device->gpu].block_count,
               bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE);
    struct range *range = calloc(1, sizeof *range);
    if (!range) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *range = (struct range){.kind = RANGE_GRAPH,
                            .size = count * SG_BLOCK_BYTES,
                            .requested = bytes,
                            .device = device,
                            .object = -1,
                            .id = sg_new_id()};
    link_init(&range->of_context);
    sg_memory_lock();
    range->base = pages_take(range->size, SG_BLOCK_BYTES);
    for (uint64_t at = 0; range->base && at < range->size; at += SG_BLOCK_BYTES) {
        *page_of(range->base + at) = (struct page){.range = range, .gpu = (uint16_t)device->gpu};
    }
    sg_memory_unlock();
    *out = range->base;
    if (range->base) {
        return CUDA_SUCCESS;
    }
    free(range);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static struct range *graph_range(CUdeviceptr address) {
    struct range *range = range_of(address);

    return range && range->kind == RANGE_GRAPH && range->base == address ? range : NULL;
}

bool graph_memory_is(CUdeviceptr address) {
    sg_memory_lock();
    bool is = graph_range(address) != NULL;
    sg_memory_unlock();
    return is;
}

bool graph_memory_covers(CUdeviceptr address, uint64_t bytes) {
    sg_memory_lock();
    const struct range *range = range_of(address);
    bool covers =
        range && range->kind == RANGE_GRAPH && address + bytes <= range->base + range->size;
    sg_memory_unlock();
    return covers;
}

static void unuse(struct range *range) {
    if (--range->opens == 0) {
        range_end(range);
    }
}

void graph_memory_use(CUdeviceptr address) {
    sg_memory_lock();
    graph_range(address)->opens++;
    sg_memory_unlock();
}

void graph_memory_unuse(CUdeviceptr address) {
    sg_memory_lock();
    unuse(graph_range(address));
    sg_memory_unlock();
}

static bool make_room(struct store *store, size_t n) {
    if (store->spare_count + n <= store->spare_room) {
        return true;
    }
    size_t room = (store->spare_count + n) * 2;
    uint32_t *spare = realloc(store->spare, room * sizeof *spare);
    if (!spare) {
        return false;
    }
    store->spare = spare;
    store->spare_room = room;
    return true;
}

/* Fills the store up to n spare blocks. */
static CUresult provide(struct device *device, size_t n) {
    struct store *store = store_of(device);

    if (store->spare_count >= n) {
        return CUDA_SUCCESS;
    }
    uint32_t missing = (uint32_t)(n - store->spare_count);
    if (!make_room(store, missing)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    SG_TRY(blocks_take(device, SG_GRAPH, missing, store->spare + store->spare_count));
    store->spare_count += missing;
    store->reserved += missing * SG_BLOCK_BYTES;
    raise(&store->reserved_high, store->reserved);
    return CUDA_SUCCESS;
}

CUresult graph_memory_map(CUdeviceptr address) {
    struct range *range = graph_range(address);

    SG_REQUIRE(range && page_of(address)->block == 0, CUDA_ERROR_INVALID_VALUE);
    struct store *store = store_of(range->device);
    SG_TRY(provide(range->device, range->size / SG_BLOCK_BYTES));
    for (uint64_t at = 0; at < range->size; at += SG_BLOCK_BYTES) {
        struct page *page = page_of(address + at);
        page->readers = page->writers = 0xffff;
        __atomic_store_n(&page->block, store->spare[--store->spare_count] + 1, __ATOMIC_RELEASE);
    }
    store->used += range->size;
    raise(&store->used_high, store->used);
    range->opens++;
    return CUDA_SUCCESS;
}

CUresult graph_memory_unmap(struct range *range) {
    struct store *store = store_of(range->device);
    size_t count = range->size / SG_BLOCK_BYTES;

    SG_REQUIRE(page_of(range->base)->block, CUDA_ERROR_INVALID_VALUE);
    if (!make_room(store, count)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint64_t at = 0; at < range->size; at += SG_BLOCK_BYTES) {
        struct page *page = page_of(range->base + at);
        store->spare[store->spare_count++] = page->block - 1;
        __atomic_store_n(&page->block, 0, __ATOMIC_RELEASE);
    }
    store->used -= range->size;
    unuse(range);
    return CUDA_SUCCESS;
}

void graph_memory_visit(blocks_visit *visit) {
    for (int i = 0; i < sg_driver.device_count; i++) {
        struct store *store = store_of(&sg_driver.devices[i]);
        visit(sg_driver.devices[i].gpu, (uint32_t)store->spare_count, store->spare);
    }
}

CUresult cuDeviceGraphMemTrim(CUdevice ordinal) {
    SG_READY();
    struct device *device = sg_device(ordinal);
    SG_REQUIRE(device, CUDA_ERROR_INVALID_DEVICE);
    struct store *store = store_of(device);
    sg_memory_lock();
    if (store->spare_count) {
        blocks_return(device, (uint32_t)store->spare_count, store->spare);
    }
    store->reserved -= store->spare_count * SG_BLOCK_BYTES;
    store->spare_count = 0;
    sg_memory_unlock();
    return CUDA_SUCCESS;
}

static uint64_t *figure(struct store *store, CUgraphMem_attribute attribute) {
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        return &store->used;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        return &store->used_high;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        return &store->reserved;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        return &store->reserved_high;
    }
    return NULL;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute,
                                      void *value) {
    SG_READY();
    struct device *device = sg_device(ordinal);
    SG_REQUIRE(device, CUDA_ERROR_INVALID_DEVICE);
    uint64_t *at = figure(store_of(device), attribute);
    SG_REQUIRE(value && at, CUDA_ERROR_INVALID_VALUE);
    sg_memory_lock();
    memcpy(value, at, sizeof *at);
    sg_memory_unlock();
    return CUDA_SUCCESS;
}

/* Only the high-water marks can be set, and only to zero, which makes them the present value. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute,
                                      void *value) {
    cuuint64_t wanted;

    SG_READY();
    struct device *device = sg_device(ordinal);
    SG_REQUIRE(device, CUDA_ERROR_INVALID_DEVICE);
    SG_REQUIRE(value && (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
                         attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH),
               CUDA_ERROR_INVALID_VALUE);
    memcpy(&wanted, value, sizeof wanted);
    SG_REQUIRE(wanted == 0, CUDA_ERROR_INVALID_VALUE);
    struct store *store = store_of(device);
    sg_memory_lock();
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
        store->used_high = store->used;
    } else {
        store->reserved_high = store->reserved;
    }
    sg_memory_unlock();
    return CUDA_SUCCESS;
}
