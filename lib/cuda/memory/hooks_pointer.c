/*
 * What is told of memory of a swap share that is managed in place of the device memory that the
 * program asked for: as much as can be what the driver tells of device memory. The program's own
 * managed memory is told as what it is.
 *
 * Two answers stay the driver's: that such memory has no IPC handle, and that no device of others
 * reaches it by its bus address. Programs ask that before they export memory, and exporting it is
 * refused.
 */
#include <string.h>

#include "abi/cuda/pointers.h"
#include "cuda/attach.h"
#include "cuda/memory/swap.h"

static void put(void *data, CUpointer_attribute attribute, uint64_t value) {
    memcpy(data, &value, cuda_pointer_attribute_bytes(attribute)); /* the low bytes come first */
}

/* The value of an attribute if it is not the driver's. */
static bool differs(const struct swapped *memory, CUpointer_attribute attribute, uint64_t *value) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *value = CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *value = 0;
        return true;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *value = memory->synchronous;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *value = memory->address;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *value = memory->bytes;
        return true;
    default:
        return false;
    }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    struct swapped memory;
    uint64_t value;
    CUresult result = DV_REAL(cuPointerGetAttribute)(data, attribute, address);
    if (!swaps() || DV_INNER() || data == NULL || !swap_converted(address, &memory)) {
        return result;
    }
    if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS && differs(&memory, attribute, &value)) {
        put(data, attribute, value);
    }
    return result;
}

/* Here an attribute that the memory does not have is zero. */
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr address) {
    struct swapped memory;
    uint64_t value;
    CUresult result = DV_REAL(cuPointerGetAttributes)(count, attributes, data, address);
    if (result != CUDA_SUCCESS || !swaps() || DV_INNER() || !swap_converted(address, &memory)) {
        return result;
    }
    for (unsigned i = 0; i < count; i++) {
        if (differs(&memory, attributes[i], &value)) {
            put(data[i], attributes[i], value);
        }
    }
    return result;
}

/* The driver refuses the only attribute that can be set for managed memory that is not on the GPU.
 * It is for devices of others that read memory past the driver. */
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                               CUdeviceptr address) {
    struct swapped memory;
    if (!swaps() || DV_INNER() || value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
        !swap_converted(address, &memory)) {
        return DV_REAL(cuPointerSetAttribute)(value, attribute, address);
    }
    swapped_synchronous(memory.address, *(const unsigned char *)value != 0);
    return CUDA_SUCCESS;
}

/* Managed memory may be as long as its last page. */
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    struct swapped memory;
    CUresult result = DV_REAL(cuMemGetAddressRange_v2)(base, bytes, address);
    if (result == CUDA_SUCCESS && swaps() && !DV_INNER() && swap_converted(address, &memory)) {
        if (base != NULL) {
            *base = memory.address;
        }
        if (bytes != NULL) {
            *bytes = memory.bytes;
        }
    }
    return result;
}

/* Functions that refuse device memory. */
#define REFUSES(fn, parameters, ...)                                                               \
    CUresult fn parameters {                                                                       \
        if (swaps() && !DV_INNER()) {                                                              \
            address = swap_told(address);                                                          \
        }                                                                                          \
        return DV_REAL(fn)(__VA_ARGS__);                                                           \
    }

REFUSES(cuMemAdvise, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device),
        address, bytes, advice, device)
REFUSES(cuMemAdvise_v2,
        (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location), address,
        bytes, advice, location)
REFUSES(cuMemRangeGetAttribute,
        (void *data, size_t room, CUmem_range_attribute attribute, CUdeviceptr address,
         size_t bytes),
        data, room, attribute, address, bytes)
REFUSES(cuMemRangeGetAttributes,
        (void **data, size_t *rooms, CUmem_range_attribute *attributes, size_t count,
         CUdeviceptr address, size_t bytes),
        data, rooms, attributes, count, address, bytes)

/* Functions for memory of the host, whose pointers have no device memory behind them. */
#define REFUSES_POINTER(fn, parameters, ...)                                                       \
    CUresult fn parameters {                                                                       \
        struct swapped memory;                                                                     \
        if (swaps() && !DV_INNER() && swap_converted((uintptr_t)host, &memory)) {                  \
            host = NULL;                                                                           \
        }                                                                                          \
        return DV_REAL(fn)(__VA_ARGS__);                                                           \
    }

REFUSES_POINTER(cuMemHostGetDevicePointer_v2, (CUdeviceptr * address, void *host, unsigned flags),
                address, host, flags)
REFUSES_POINTER(cuMemHostRegister, (void *host, size_t bytes, unsigned flags), host, bytes, flags)
REFUSES_POINTER(cuMemHostRegister_v2, (void *host, size_t bytes, unsigned flags), host, bytes,
                flags)
