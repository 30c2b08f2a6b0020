/* Attributes of pointers. */
#ifndef DIVVY_ABI_CUDA_POINTERS_H
#define DIVVY_ABI_CUDA_POINTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/cuda/types.h"

/* Bytes of an attribute's value. */
static inline size_t cuda_pointer_attribute_bytes(CUpointer_attribute attribute) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return sizeof(int);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return sizeof(bool);
    default:
        return sizeof(uint64_t);
    }
}

#endif
