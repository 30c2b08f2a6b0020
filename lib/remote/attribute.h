/* Attributes whose values the description cannot tell: how long each is, and which are handles. */
#ifndef DIVVY_REMOTE_ATTRIBUTE_H
#define DIVVY_REMOTE_ATTRIBUTE_H

#include "abi/cuda/types.h"

#include <stdbool.h>

enum attribute_word { ATTRIBUTE_OWNER, ATTRIBUTE_ID, ATTRIBUTE_CHECK, ATTRIBUTE_WORDS };
enum cluster_word { CLUSTER_FUNCTION, CLUSTER_COUNT, CLUSTER_CHECK, CLUSTER_WORDS };

/* The last attribute of a launch that CUDA 13 documents, and one that no value can say: a node that kernels change has a
 * handle for them. */
#define LAUNCH_ATTRIBUTE_LAST 18u

/* How a value of 64 bytes is to be taken. */
enum launch_value { LAUNCH_VALUE_PLAIN, LAUNCH_VALUE_EVENT, LAUNCH_VALUE_REFUSED };

static inline enum launch_value launch_value_of(uint32_t id) {
    switch (id) {
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        return LAUNCH_VALUE_EVENT; /* at the beginning of the value */
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        return LAUNCH_VALUE_REFUSED;
    default:
        return id <= LAUNCH_ATTRIBUTE_LAST ? LAUNCH_VALUE_PLAIN : LAUNCH_VALUE_REFUSED;
    }
}

/* Bytes of an attribute of a pool; 0 for one that nobody knows. */
static inline size_t pool_value_bytes(uint32_t id) {
    switch (id) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_MAX_POOL_SIZE:
        return 8;
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_ALLOCATION_TYPE:
    case CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES:
    case CU_MEMPOOL_ATTR_LOCATION_ID:
    case CU_MEMPOOL_ATTR_LOCATION_TYPE:
    case CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED:
        return 4;
    default:
        return 0;
    }
}

#endif
