/* Virtual memory management: physical allocations, addresses, and mapping allocations at addresses.
 * Physical memory lives while a handle, a mapping, an importer or a descriptor of it does. */
#include "simgpu/cuda/vmm.h"

#include <stdlib.h>
#include <unistd.h>

static struct link all = {&all, &all}; /* physical allocations; the memory lock */

void vmm_visit(blocks_visit *visit) {
    for (struct link *at = all.next; at != &all; at = at->next) {
        const struct physical *p = CONTAINER(at, struct physical, of_process);
        if (p->object < 0) {
            visit(p->device->gpu, p->count, p->blocks);
        }
    }
}

/* Handles of refs 0 are still told by their mark while something is mapped: cuMemRetain brings them
 * back. */
struct physical *physical_of(CUmemGenericAllocationHandle handle) {
    struct physical *p = (struct physical *)(uintptr_t)handle;

    if (handle_given(p, HANDLE_PHYSICAL) && (p->refs || handle_dead(p, HANDLE_PHYSICAL))) {
        return p;
    }
    return NULL;
}

static void release_unused(struct physical *p) {
    if (p->refs || p->mapped) {
        return;
    }
    if (p->object >= 0) {
        object_drop((uint32_t)p->object);
    } else {
        blocks_return(p->device, p->count, p->blocks);
    }
    free(p->blocks);
    p->blocks = NULL;
    link_remove(&p->of_process);
    handle_end(p, HANDLE_PHYSICAL);
}

static CUresult check_prop(const CUmemAllocationProp *prop, struct device **device) {
    SG_READY();
    SG_REQUIRE(prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(!((unsigned)prop->requestedHandleTypes & ~1u), CUDA_ERROR_NOT_SUPPORTED);
    SG_REQUIRE(prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
    *device = sg_device(prop->location.id);
    return *device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option) {
    struct device *device;

    SG_TRY(check_prop(prop, &device));
    SG_REQUIRE(granularity && option <= CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
               CUDA_ERROR_INVALID_VALUE);
    *granularity = SG_BLOCK_BYTES;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags) {
    SG_GATE();
    struct device *device;

    SG_TRY(check_prop(prop, &device));
    SG_REQUIRE(out && flags == 0 && size && size % SG_BLOCK_BYTES == 0, CUDA_ERROR_INVALID_VALUE);
    SG_TRY((CUresult)sg_fault_answer(&sg_driver.instance, device->gpu, SG_FAULT_ALLOC, __func__));
    sg_burn(sg_driver.machine->alloc_ns);
    if (size / SG_BLOCK_BYTES > sg_driver.instance.state->gpus[device->gpu].block_count) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct physical *p = handle_new(HANDLE_PHYSICAL, sizeof *p);
    uint32_t count = (uint32_t)(size / SG_BLOCK_BYTES);
    uint32_t *blocks = malloc(count * sizeof *blocks);
    CUresult result = p && blocks ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        sg_memory_lock();
        result = blocks_take(device, SG_VMM, count, blocks);
        sg_memory_unlock();
    }
    if (result != CUDA_SUCCESS) {
        free(blocks);
        if (p) {
            handle_end(p, HANDLE_PHYSICAL);
        }
        return result;
    }
    p->device = device;
    p->prop = *prop;
    p->size = size;
    p->count = count;
    p->blocks = blocks;
    p->object = -1;
    p->refs = 1;
    sg_memory_lock();
    link_add(&all, &p->of_process);
    sg_memory_unlock();
    *out = (uintptr_t)p;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    SG_READY();
    sg_memory_lock();
    struct physical *p = physical_of(handle);
    if (p) {
        p->refs--;
        release_unused(p);
    }
    sg_memory_unlock();
    return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    SG_READY();
    SG_REQUIRE(handle, CUDA_ERROR_INVALID_VALUE);
    sg_memory_lock();
    struct page *page = page_of((uintptr_t)address);
    struct physical *p = page && page->range ? page->physical : NULL;
    if (p) {
        p->refs++;
        *handle = (uintptr_t)p;
    }
    sg_memory_unlock();
    return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle) {
    SG_READY();
    SG_REQUIRE(prop, CUDA_ERROR_INVALID_VALUE);
    sg_memory_lock();
    struct physical *p = physical_of(handle);
    if (p) {
        *prop = p->prop;
    }
    sg_memory_unlock();
    return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- addresses ---- */

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t align, CUdeviceptr wish,
                             unsigned long long flags) {
    SG_READY();
    SG_REQUIRE(out && size && size % SG_BLOCK_BYTES == 0 && flags == 0 &&
                   (align & (align - 1)) == 0,
               CUDA_ERROR_INVALID_VALUE);
    struct range *range = calloc(1, sizeof *range);
    if (!range) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *range = (struct range){.kind = RANGE_RESERVED, .size = size, .object = -1, .id = sg_new_id()};
    link_init(&range->of_context);
    sg_memory_lock();
    /* The wish is a hint. */
    range->base = wish && pages_take_at(wish, size) ? wish : pages_take(size, align);
    for (uint64_t at = 0; range->base && at < size; at += SG_BLOCK_BYTES) {
        *page_of(range->base + at) = (struct page){.range = range};
    }
    sg_memory_unlock();
    if (!range->base) {
        free(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = range->base;
    return CUDA_SUCCESS;
}

static bool any_mapped(CUdeviceptr address, uint64_t size) {
    for (uint64_t at = 0; at < size; at += SG_BLOCK_BYTES) {
        if (page_of(address + at)->physical) {
            return true;
        }
    }
    return false;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
    SG_READY();
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    sg_memory_lock();
    struct range *range = range_of(address);
    if (range && range->kind == RANGE_RESERVED && range->base == address && range->size == size &&
        !any_mapped(address, size)) {
        range_end(range);
        result = CUDA_SUCCESS;
    }
    sg_memory_unlock();
    return result;
}

/* ---- mapping; all but the functions of the driver hold the memory lock ---- */

static bool aligned(CUdeviceptr address, uint64_t size) {
    return size && address % SG_BLOCK_BYTES == 0 && size % SG_BLOCK_BYTES == 0 &&
           pages_hold(address) && address + size > address && pages_hold(address + size - 1);
}

static bool reserved_and_free(CUdeviceptr address, uint64_t size) {
    for (uint64_t at = 0; at < size; at += SG_BLOCK_BYTES) {
        struct page *page = page_of(address + at);
        if (!page->range || page->range->kind != RANGE_RESERVED || page->physical) {
            return false;
        }
    }
    return true;
}

static void map(CUdeviceptr address, uint64_t size, uint64_t offset, struct physical *p) {
    uint32_t first = (uint32_t)(offset / SG_BLOCK_BYTES);

    for (uint64_t at = 0; at < size; at += SG_BLOCK_BYTES) {
        struct page *page = page_of(address + at);
        page->gpu = (uint16_t)p->device->gpu;
        page->readers = page->writers = 0;
        page->physical = p;
        page->first = at == 0;
        page->last = at + SG_BLOCK_BYTES == size;
        __atomic_store_n(&page->block, p->blocks[first++] + 1, __ATOMIC_RELEASE);
        p->mapped++;
    }
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
    SG_READY();
    SG_REQUIRE(flags == 0 && aligned(address, size) && offset % SG_BLOCK_BYTES == 0,
               CUDA_ERROR_INVALID_VALUE);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    sg_memory_lock();
    struct physical *p = physical_of(handle);
    if (p && offset <= p->size && size <= p->size - offset && reserved_and_free(address, size)) {
        map(address, size, offset, p);
        result = CUDA_SUCCESS;
    }
    sg_memory_unlock();
    return result;
}

/* Whether the pages are whole mappings. */
static bool whole_mappings(CUdeviceptr address, uint64_t size) {
    for (uint64_t at = 0; at < size; at += SG_BLOCK_BYTES) {
        if (!page_of(address + at)->physical) {
            return false;
        }
    }
    return page_of(address)->first && page_of(address + size - SG_BLOCK_BYTES)->last;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
    SG_READY();
    SG_REQUIRE(aligned(address, size), CUDA_ERROR_INVALID_VALUE);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    sg_memory_lock();
    if (whole_mappings(address, size)) {
        for (uint64_t at = 0; at < size; at += SG_BLOCK_BYTES) {
            struct page *page = page_of(address + at);
            struct physical *p = page->physical;
            __atomic_store_n(&page->block, 0, __ATOMIC_RELEASE);
            page->physical = NULL;
            page->readers = page->writers = 0;
            p->mapped--;
            release_unused(p);
        }
        result = CUDA_SUCCESS;
    }
    sg_memory_unlock();
    return result;
}

static CUresult check_access(const CUmemAccessDesc *list, size_t count) {
    SG_REQUIRE(list && count, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        SG_REQUIRE(list[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                       list[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                       list[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                   CUDA_ERROR_INVALID_VALUE);
        SG_REQUIRE(list[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
        SG_REQUIRE(sg_device(list[i].location.id), CUDA_ERROR_INVALID_DEVICE);
    }
    return CUDA_SUCCESS;
}

static void give_access(struct page *page, const CUmemAccessDesc *desc) {
    uint16_t bit = (uint16_t)(1u << desc->location.id);

    page->readers = (uint16_t)(desc->flags & 1 ? page->readers | bit : page->readers & ~bit);
    page->writers = (uint16_t)(desc->flags & 2 ? page->writers | bit : page->writers & ~bit);
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *list,
                        size_t count) {
    SG_READY();
    SG_TRY(check_access(list, count));
    SG_REQUIRE(aligned(address, size), CUDA_ERROR_INVALID_VALUE);
    CUresult result = CUDA_SUCCESS;
    sg_memory_lock();
    for (uint64_t at = 0; at < size; at += SG_BLOCK_BYTES) {
        if (!page_of(address + at)->physical) {
            result = CUDA_ERROR_INVALID_VALUE;
        }
    }
    for (uint64_t at = 0; result == CUDA_SUCCESS && at < size; at += SG_BLOCK_BYTES) {
        for (size_t i = 0; i < count; i++) {
            give_access(page_of(address + at), &list[i]);
        }
    }
    sg_memory_unlock();
    return result;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                        CUdeviceptr address) {
    SG_READY();
    SG_REQUIRE(flags && location && location->type == CU_MEM_LOCATION_TYPE_DEVICE,
               CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(sg_device(location->id), CUDA_ERROR_INVALID_DEVICE);
    sg_memory_lock();
    struct page *page = page_of(address);
    bool mapped = page && page->block;
    unsigned bit = mapped ? 1u << location->id : 0;
    if (mapped) {
        *flags = (page->readers & bit ? 1u : 0) | (page->writers & bit ? 2u : 0);
    }
    sg_memory_unlock();
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
