/* Memory as file descriptors: allocations of cuMemCreate, and address ranges as dma-bufs.
 *
 * Every descriptor is a new open file description of one and the same file, as those of the driver
 * are of its control device: device and inode tell nothing about what a descriptor stands for. The
 * memory lives while any of them is open anywhere, also unread in a socket. */
#include "simgpu/cuda/vmm.h"

#include <stdlib.h>
#include <unistd.h>

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
    uint64_t key;
    int fd = -1;

    SG_READY();
    SG_REQUIRE(out && flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
               CUDA_ERROR_INVALID_VALUE);
    sg_memory_lock();
    struct physical *p = physical_of(handle);
    CUresult result =
        p && (p->prop.requestedHandleTypes & type) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        result = blocks_share(p->device, p->count, p->blocks, &p->object, &key);
    }
    if (result == CUDA_SUCCESS) {
        fd = sg_export(&sg_driver.instance, (uint32_t)p->object);
    }
    sg_memory_unlock();
    if (result == CUDA_SUCCESS && fd < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (result == CUDA_SUCCESS) {
        *(int *)out = fd;
    }
    return result;
}

static CUresult import(int fd, struct physical *p) {
    uint32_t object, gpu;
    uint64_t key;

    SG_REQUIRE(sg_exported(&sg_driver.instance, fd, &object, &key) == 0, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(object_hold(object, key, &gpu, &p->size, &p->count, &p->blocks));
    p->object = object;
    p->device = sg_device_of_gpu(gpu);
    if (p->device) {
        return CUDA_SUCCESS;
    }
    object_drop(object);
    free(p->blocks);
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *os_handle,
                                        CUmemAllocationHandleType type) {
    SG_READY();
    SG_REQUIRE(out && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_INVALID_VALUE);
    struct physical *p = handle_new(HANDLE_PHYSICAL, sizeof *p);
    if (!p) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    link_init(&p->of_process);
    sg_memory_lock();
    CUresult result = import((int)(intptr_t)os_handle, p);
    if (result == CUDA_SUCCESS) {
        p->refs = 1;
        p->prop =
            (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .requestedHandleTypes = type,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, p->device->ordinal}};
        *out = (uintptr_t)p;
    } else {
        handle_end(p, HANDLE_PHYSICAL);
    }
    sg_memory_unlock();
    return result;
}

/* ---- address ranges ---- */

/* The driver's documentation: memory of cuMemAlloc, or addresses that are mapped throughout, to
 * allocations of one device. */
static CUresult make_shared(CUdeviceptr address, size_t size) {
    const struct device *first = NULL;

    for (uint64_t at = address - address % SG_BLOCK_BYTES; at < address + size;
         at += SG_BLOCK_BYTES) {
        struct page *page = page_of(at);
        struct range *range = page ? page->range : NULL;
        struct physical *p = range ? page->physical : NULL;
        uint64_t key;

        if (!range || (range->kind == RANGE_RESERVED
                           ? !p
                           : range->kind != RANGE_SMALL && range->kind != RANGE_OWN)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const struct device *device = p ? p->device : range->device;
        SG_REQUIRE(!first || device == first, CUDA_ERROR_INVALID_VALUE);
        first = device;
        if (p) {
            SG_TRY(blocks_share(p->device, p->count, p->blocks, &p->object, &key));
        } else {
            SG_TRY(blocks_share(range->device, range->count, range->blocks, &range->object, &key));
        }
    }
    return CUDA_SUCCESS;
}

/* One description for all that lies in the range. */
static int export_range(CUdeviceptr address, size_t size) {
    int fd = -1;

    for (uint64_t at = address - address % SG_BLOCK_BYTES; at < address + size;
         at += SG_BLOCK_BYTES) {
        struct page *page = page_of(at);
        uint32_t object = (uint32_t)(page->physical ? page->physical->object : page->range->object);
        int result = fd < 0 ? sg_export(&sg_driver.instance, object)
                            : sg_export_more(&sg_driver.instance, object, fd);
        if (result < 0) {
            if (fd >= 0) {
                close(fd);
            }
            return -1;
        }
        fd = fd < 0 ? result : fd;
    }
    return fd;
}

CUresult cuMemGetHandleForAddressRange(void *out, CUdeviceptr address, size_t size,
                                       CUmemRangeHandleType type, unsigned long long flags) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int fd = -1;

    SG_REQUIRE(out && size, CUDA_ERROR_INVALID_VALUE);
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(type == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD && flags == 0 && address % page == 0 &&
                   size % page == 0 && address + size > address,
               CUDA_ERROR_INVALID_VALUE);
    sg_memory_lock();
    CUresult result = make_shared(address, size);
    if (result == CUDA_SUCCESS) {
        fd = export_range(address, size);
        result = fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
    }
    sg_memory_unlock();
    if (result == CUDA_SUCCESS) {
        *(int *)out = fd;
    }
    return result;
}
