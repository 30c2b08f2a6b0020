/*
 * Physical memory of the virtual memory management functions: one object per cuMemCreate or import.
 *
 * The driver keeps the memory as long as a handle to it is held (each cuMemCreate,
 * cuMemRetainAllocationHandle and import gives one hold), it is mapped somewhere, or a file
 * descriptor to which it was exported is open. It stays charged exactly as long.
 */
#ifndef DIVVY_CUDA_MEMORY_OBJECT_H
#define DIVVY_CUDA_MEMORY_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "share/share.h"
#include "substitute/substitute.h"

typedef uint64_t object_handle; /* the driver's CUmemGenericAllocationHandle */

/* Bytes of objects that ended, for each GPU. The functions below add to them and the caller gives
 * them back. */
struct ended {
    uint64_t bytes[DV_PAGE_DEVICES];
};

/* Notes the memory of a new handle, for which so many bytes are charged (0 for an import, whose
 * size is not known yet). False if there is no memory for the note. */
DV_HIDDEN bool object_create(object_handle handle, unsigned device, uint64_t bytes);

/* Before a driver call that releases a handle: takes its hold away. object_released then tells how
 * the call ended. False if the handle is not known; there is nothing to tell then. */
struct object_use {
    object_handle handle;
    uint32_t object;
    unsigned device;
    uint64_t more; /* bytes for which an import has to be charged in addition */
};
DV_HIDDEN bool object_release(struct object_use *use, object_handle handle);
DV_HIDDEN void object_released(const struct object_use *use, bool done, struct ended *ended);

/* The same for a mapping that reaches up to byte `end` of the memory. more is noted as charged. */
DV_HIDDEN bool object_map(struct object_use *use, object_handle handle, uint64_t end);
DV_HIDDEN bool object_mapped(const struct object_use *use, uint64_t address, uint64_t bytes,
                             bool done, struct ended *ended);

/* The same for the unmapping of a range of addresses. */
DV_HIDDEN void object_unmap(uint64_t address, uint64_t bytes);
DV_HIDDEN void object_unmapped(uint64_t address, uint64_t bytes, bool done, struct ended *ended);

/* The driver gave a handle for the memory that is mapped at an address. */
DV_HIDDEN void object_retained(object_handle handle, uint64_t address);

/* The memory was exported as a file descriptor of this process. */
DV_HIDDEN void object_exported(object_handle handle, int fd);

/* The memory was mapped into a sparse array, which holds it until the array ends. */
DV_HIDDEN void object_bound(object_handle handle, uint64_t array);
DV_HIDDEN void object_array_ended(uint64_t array, struct ended *ended);

/* Finds the objects whose exported descriptors are closed by now. */
DV_HIDDEN void objects_reread(struct ended *ended);

#endif
