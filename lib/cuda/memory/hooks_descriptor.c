/*
 * Memory that leaves as a file descriptor, and memory that comes as one.
 *
 * The driver keeps exported memory until the last copy of the descriptor is closed, in whatever
 * process. So the charge moves to the share before the driver is asked, and the descriptor is marked
 * before the program gets it. The mark tells an importer of the same share that the memory is
 * charged already, and whoever looks later whether a descriptor is still open.
 *
 * Memory of another share, or of nobody's, is charged to the share that imports it, once for all its
 * processes. A descriptor without a mark gets one for that.
 */
#include <unistd.h>

#include "cuda/attach.h"
#include "cuda/device.h"
#include "cuda/memory/ipc.h"
#include "cuda/memory/object.h"
#include "cuda/memory/swapped.h"
#include "cuda/memory/vmm.h"

/* Moves the charge of memory to the share. */
static CUresult share_object(const struct object_use *use) {
    uint8_t key[DV_PAGE_EXPORT_KEY_BYTES];
    dv_mark_key(use->mark, key);
    if (use->mark == 0 ||
        dv_export_publish(attached_share(), dv_share_kept(attached_share(), use->device), key,
                          use->bytes) != DV_OK) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    object_shared(use);
    return CUDA_SUCCESS;
}

static CUresult mark_descriptor(uint64_t mark, int fd) {
    uint8_t key[DV_PAGE_EXPORT_KEY_BYTES];
    dv_mark_key(mark, key);
    return dv_export_carry(attached_share(), key, fd) == DV_OK ? CUDA_SUCCESS
                                                               : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
    struct object_use use;
    struct ended ended = {.shared = 0};
    int fd = -1;
    if (DV_INNER() || shareable == NULL || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !object_export(&use, handle, dv_mark_new())) {
        return DV_REAL(cuMemExportToShareableHandle)(shareable, handle, type, flags);
    }
    CUresult result = share_object(&use);
    if (result == CUDA_SUCCESS) {
        result = DV_CALL(cuMemExportToShareableHandle, &fd, handle, type, flags);
    }
    if (result == CUDA_SUCCESS) {
        result = mark_descriptor(use.mark, fd);
        if (result == CUDA_SUCCESS) {
            *(int *)shareable = fd;
        } else {
            close(fd);
        }
    }
    object_export_done(&use, &ended);
    vmm_give_back(&ended);
    return result;
}

/* Does `body` with each physical memory that is mapped in the range, until it fails. */
static CUresult each_mapped(CUdeviceptr address, size_t bytes,
                            CUresult (*body)(const struct object_use *use, int fd), int fd) {
    struct object_use use;
    struct ended ended = {.shared = 0};
    uint64_t at = address;
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && at < address + bytes &&
           object_export_mapped(&use, &at, address + bytes, dv_mark_new())) {
        result = body(&use, fd);
        object_export_done(&use, &ended);
        vmm_give_back(&ended);
    }
    return result;
}

static CUresult share_mapped(const struct object_use *use, int fd) {
    (void)fd;
    return share_object(use);
}

static CUresult mark_mapped(const struct object_use *use, int fd) {
    return mark_descriptor(use->mark, fd);
}

/* A dma-buf of a range of addresses: memory of cuMemAlloc, or what is mapped there. Other memory the
 * driver refuses. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t bytes,
                                       CUmemRangeHandleType type, unsigned long long flags) {
    uint8_t key[DV_PAGE_EXPORT_KEY_BYTES];
    struct swapped memory;
    bool linear = false;
    int fd = -1;
    if (DV_INNER() || handle == NULL || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD ||
        bytes > UINT64_MAX - address || attach_share() != CUDA_SUCCESS ||
        swapped_find(address, &memory)) { /* managed memory, which the driver refuses */
        return DV_REAL(cuMemGetHandleForAddressRange)(handle, address, bytes, type, flags);
    }
    CUresult result = ipc_share(address, key, &linear);
    if (result == CUDA_SUCCESS && !linear) {
        result = each_mapped(address, bytes, share_mapped, -1);
    }
    if (result == CUDA_SUCCESS) {
        result = DV_CALL(cuMemGetHandleForAddressRange, &fd, address, bytes, type, flags);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (linear) {
        bool marked = dv_export_carry(attached_share(), key, fd) == DV_OK;
        result = marked ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        result = each_mapped(address, bytes, mark_mapped, fd);
    }
    if (result == CUDA_SUCCESS) {
        *(int *)handle = fd;
    } else {
        close(fd);
    }
    return result;
}

/* The mark of a descriptor of memory for which the share is charged from now on, once; 0 if the
 * importing process has to be. */
static uint64_t join(unsigned device, int fd) {
    uint8_t key[DV_PAGE_EXPORT_KEY_BYTES];
    uint64_t mark = dv_mark_of(fd);
    if (mark == 0) {
        mark = dv_mark_new();
        mark = mark != 0 && dv_mark_put(fd, mark) ? mark : 0;
    }
    dv_mark_key(mark, key);
    unsigned account = dv_share_kept(attached_share(), device);
    return mark != 0 && dv_export_join(attached_share(), account, key) == DV_OK ? mark : 0;
}

static void part(uint64_t mark) {
    uint8_t key[DV_PAGE_EXPORT_KEY_BYTES];
    dv_mark_key(mark, key);
    if (mark != 0) {
        dv_export_drop(attached_share(), key);
    }
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type) {
    CUmemAllocationProp prop;
    CUmemGenericAllocationHandle got = 0;
    if (DV_INNER() || handle == NULL || attach_share() != CUDA_SUCCESS) {
        return DV_REAL(cuMemImportFromShareableHandle)(handle, shareable, type);
    }
    CUresult result = DV_CALL(cuMemImportFromShareableHandle, &got, shareable, type);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (DV_CALL(cuMemGetAllocationPropertiesFromHandle, &prop, got) == CUDA_SUCCESS &&
        prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        int number = device_number(prop.location.id);
        uint64_t mark = number >= 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                            ? join((unsigned)number, (int)(intptr_t)shareable)
                            : 0;
        if (number >= 0 && !object_create(got, (unsigned)number, 0, mark)) {
            DV_CALL(cuMemRelease, got);
            part(mark);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    *handle = got;
    return CUDA_SUCCESS;
}

/* Descriptors are closed unseen. So what they alone kept is looked for when it matters. */
static void descriptors_reread(unsigned device, bool *less) {
    (void)device;
    *less = dv_export_settle(attached_share()) > 0 || *less;
}
ON(memory_short, descriptors_reread);
