/*
 * Virtual memory management. Memory is charged when it is made (cuMemCreate), on the GPU that the
 * call names, whatever context is current. Reserving addresses costs nothing.
 *
 * Memory imported from a descriptor (hooks_descriptor.c) costs nothing if the share has exported
 * it. Other memory is charged with its first mapping, which tells its size.
 */
#include "cuda/attach.h"
#include "cuda/device.h"
#include "cuda/memory/blocks.h"
#include "cuda/memory/object.h"
#include "cuda/memory/reservation.h"
#include "cuda/memory/vmm.h"

void vmm_give_back(struct ended *ended) {
    uint64_t mark;
    uint8_t key[DV_PAGE_EXPORT_KEY_BYTES];
    for (unsigned device = 0; device < DV_PAGE_DEVICES; device++) {
        reservation_release(device, ended->bytes[device]);
    }
    while (object_next_shared(ended, &mark)) {
        dv_mark_key(mark, key);
        dv_export_drop(attached_share(), key);
    }
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
               ? reservation_open_kept(reservation, blocks_worst(bytes))
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
    if (result != CUDA_SUCCESS) {
        reservation_fail(&reservation, result);
        return result;
    }
    if (!object_create(got, reservation.home.device, reservation.bytes, 0)) {
        DV_CALL(cuMemRelease, got);
        reservation_settle(&reservation, 0);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    reservation_settle(&reservation, reservation.bytes);
    *handle = got;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    struct object_use use;
    struct ended ended = {.shared = 0};
    if (DV_INNER() || !object_release(&use, handle)) {
        return DV_REAL(cuMemRelease)(handle);
    }
    CUresult result = DV_CALL(cuMemRelease, handle);
    object_released(&use, result == CUDA_SUCCESS, &ended);
    vmm_give_back(&ended);
    return result;
}

/* How many bytes the share has to be charged more for an import that is mapped up to `end`. */
static void find_more(struct object_use *use, uint64_t end) {
    uint8_t key[DV_PAGE_EXPORT_KEY_BYTES];
    if (use->imported && use->mark != 0) {
        dv_mark_key(use->mark, key);
        use->more = dv_export_lacks(attached_share(), key, blocks_worst(end));
    }
}

static void charge_more(const struct object_use *use, uint64_t end) {
    uint8_t key[DV_PAGE_EXPORT_KEY_BYTES];
    if (use->imported && use->mark != 0) {
        dv_mark_key(use->mark, key);
        dv_export_grow(attached_share(), dv_share_kept(attached_share(), use->device), key,
                       blocks_worst(end), use->more);
    }
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
    struct object_use use;
    struct reservation reservation;
    struct ended ended = {.shared = 0};
    if (DV_INNER() || bytes > SIZE_MAX - offset || !object_map(&use, handle, offset + bytes)) {
        return DV_REAL(cuMemMap)(address, bytes, offset, handle, flags);
    }
    find_more(&use, offset + bytes);
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
    if (result == CUDA_SUCCESS) {
        charge_more(&use, offset + bytes);
    }
    vmm_give_back(&ended);
    return result;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    struct ended ended = {.shared = 0};
    if (DV_INNER() || bytes > SIZE_MAX - address) {
        return DV_REAL(cuMemUnmap)(address, bytes);
    }
    object_unmap(address, bytes);
    CUresult result = DV_CALL(cuMemUnmap, address, bytes);
    object_unmapped(address, bytes, result == CUDA_SUCCESS, &ended);
    vmm_give_back(&ended);
    return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    CUresult result = DV_CALL(cuMemRetainAllocationHandle, handle, address);
    if (result == CUDA_SUCCESS && !DV_INNER()) {
        object_retained(*handle, (uint64_t)(uintptr_t)address);
    }
    return result;
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
    struct ended ended = {.shared = 0};
    object_array_ended((uint64_t)(uintptr_t)array, &ended);
    vmm_give_back(&ended);
}
