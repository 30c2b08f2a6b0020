/*
 * Virtual memory management. Memory is charged when it is made (cuMemCreate), on the GPU that the
 * call names, whatever context is current. Reserving addresses costs nothing.
 *
 * Memory imported from a descriptor is charged to the process that imports it, with the first
 * mapping, which tells its size. Nobody can tell whether the process that made it is still charged.
 */
#include "cuda/attach.h"
#include "cuda/device.h"
#include "cuda/memory/blocks.h"
#include "cuda/memory/object.h"
#include "cuda/memory/reservation.h"
#include "cuda/memory/vmm.h"

static bool give_back(const struct ended *ended) {
    bool any = false;
    for (unsigned device = 0; device < DV_PAGE_DEVICES; device++) {
        reservation_release(device, ended->bytes[device]);
        any = any || ended->bytes[device] != 0;
    }
    return any;
}

static bool is_on_host(const CUmemLocation *location) {
    return location->type == CU_MEM_LOCATION_TYPE_HOST ||
           location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

/* Managed memory is charged on the GPU of the current context, because it may come to any GPU. */
static CUresult open_reservation(struct reservation *reservation, size_t bytes,
                                 const CUmemAllocationProp *prop) {
    return is_on_host(&prop->location)
               ? reservation_open(reservation, blocks_worst(bytes))
               : reservation_open_on(reservation, prop->location.id, blocks_worst(bytes));
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *prop, unsigned long long flags) {
    struct reservation reservation;
    CUmemGenericAllocationHandle got = 0;
    if (DV_INNER() || handle == NULL || prop == NULL || bytes == 0 ||
        (is_on_host(&prop->location) && prop->type != CU_MEM_ALLOCATION_TYPE_MANAGED)) {
        return DV_REAL(cuMemCreate)(handle, bytes, prop, flags);
    }
    CUresult result = open_reservation(&reservation, bytes, prop);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = DV_CALL(cuMemCreate, &got, bytes, prop, flags);
    if (result == CUDA_SUCCESS && !object_create(got, reservation.home.device, reservation.bytes)) {
        DV_CALL(cuMemRelease, got);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    reservation_settle(&reservation, result == CUDA_SUCCESS ? reservation.bytes : 0);
    if (result == CUDA_SUCCESS) {
        *handle = got;
    }
    return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    struct object_use use;
    struct ended ended = {{0}};
    if (DV_INNER() || !object_release(&use, handle)) {
        return DV_REAL(cuMemRelease)(handle);
    }
    CUresult result = DV_CALL(cuMemRelease, handle);
    object_released(&use, result == CUDA_SUCCESS, &ended);
    give_back(&ended);
    return result;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
    struct object_use use;
    struct reservation reservation;
    struct ended ended = {{0}};
    if (DV_INNER() || bytes > SIZE_MAX - offset || !object_map(&use, handle, offset + bytes)) {
        return DV_REAL(cuMemMap)(address, bytes, offset, handle, flags);
    }
    CUresult result = reservation_open_number(&reservation, use.device, use.more);
    bool reserved = result == CUDA_SUCCESS;
    if (reserved) {
        result = DV_CALL(cuMemMap, address, bytes, offset, handle, flags);
    }
    bool mapped = result == CUDA_SUCCESS;
    if (!object_mapped(&use, address, bytes, mapped, &ended) && mapped) {
        DV_CALL(cuMemUnmap, address, bytes);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (reserved) {
        reservation_settle(&reservation, result == CUDA_SUCCESS ? use.more : 0);
    }
    give_back(&ended);
    return result;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    struct ended ended = {{0}};
    if (DV_INNER() || bytes > SIZE_MAX - address) {
        return DV_REAL(cuMemUnmap)(address, bytes);
    }
    object_unmap(address, bytes);
    CUresult result = DV_CALL(cuMemUnmap, address, bytes);
    object_unmapped(address, bytes, result == CUDA_SUCCESS, &ended);
    give_back(&ended);
    return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    CUresult result = DV_CALL(cuMemRetainAllocationHandle, handle, address);
    if (result == CUDA_SUCCESS && !DV_INNER()) {
        object_retained(*handle, (uint64_t)(uintptr_t)address);
    }
    return result;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
    CUresult result = DV_CALL(cuMemExportToShareableHandle, shareable, handle, type, flags);
    if (result == CUDA_SUCCESS && !DV_INNER() && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        object_exported(handle, *(const int *)shareable);
    }
    return result;
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
        !is_on_host(&prop.location)) {
        int number = device_number(prop.location.id);
        if (number >= 0 && !object_create(got, (unsigned)number, 0)) {
            DV_CALL(cuMemRelease, got);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    *handle = got;
    return CUDA_SUCCESS;
}

/* What cuMemMapArrayAsync takes: CUarrayMapInfo of the driver API documentation, with the fields
 * that tell which memory goes into which array. */
struct array_mapping {
    unsigned resource_type;
    const void *array; /* plain or mipmapped */
    unsigned part;
    unsigned long long part_place[4];
    unsigned operation; /* 1 maps, 2 unmaps */
    unsigned handle_type;
    CUmemGenericAllocationHandle handle;
    unsigned long long offset;
    unsigned devices;
    unsigned flags;
    unsigned reserved[2];
};
_Static_assert(sizeof(struct array_mapping) == 96, "CUarrayMapInfo");

/* Memory in a sparse array stays charged until the array is destroyed. An unmapping takes effect
 * only when the stream gets to it. */
static void bind(const CUarrayMapInfo *list, unsigned count) {
    const struct array_mapping *mapping = (const struct array_mapping *)list;
    for (unsigned i = 0; mapping != NULL && i < count; i++) {
        if (mapping[i].operation == 1) {
            object_bound(mapping[i].handle, (uint64_t)(uintptr_t)mapping[i].array);
        }
    }
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned count, CUstream stream) {
    CUresult result = DV_CALL(cuMemMapArrayAsync, list, count, stream);
    if (result == CUDA_SUCCESS && !DV_INNER()) {
        bind(list, count);
    }
    return result;
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned count, CUstream stream) {
    CUresult result = DV_CALL(cuMemMapArrayAsync_ptsz, list, count, stream);
    if (result == CUDA_SUCCESS && !DV_INNER()) {
        bind(list, count);
    }
    return result;
}

void vmm_array_destroyed(const void *array) {
    struct ended ended = {{0}};
    object_array_ended((uint64_t)(uintptr_t)array, &ended);
    give_back(&ended);
}

/* Gives back what was exported and whose descriptors are closed by now. */
static void vmm_reread(unsigned device, bool *less) {
    struct ended ended = {{0}};
    (void)device;
    objects_reread(&ended);
    *less = give_back(&ended) || *less;
}
ON(memory_short, vmm_reread);
