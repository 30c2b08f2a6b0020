/*
 * Physical memory of the virtual memory management functions: one object per cuMemCreate or import.
 *
 * The driver keeps the memory as long as a handle to it is held (each cuMemCreate,
 * cuMemRetainAllocationHandle and import gives one hold), it is mapped somewhere, or a file
 * descriptor to which it was exported is open. It stays charged exactly as long.
 *
 * Memory that was exported, or imported by a descriptor that can bear a mark, is charged to the
 * share under that mark (share.h) and no more to this process, which is then one of its holders.
 */
#ifndef DIVVY_CUDA_MEMORY_OBJECT_H
#define DIVVY_CUDA_MEMORY_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "share/share.h"
#include "substitute/substitute.h"

typedef uint64_t object_handle; /* the driver's CUmemGenericAllocationHandle */

/* What is given back with objects that ended: bytes of each GPU, and holds of what the share is
 * charged for. The functions below add to it, the caller calls object_next_shared until it says
 * that there is no more. */
struct ended {
    uint64_t bytes[DV_PAGE_DEVICES];
    uint32_t shared; /* index + 1 of the first object */
};
DV_HIDDEN bool object_next_shared(struct ended *ended, uint64_t *mark);

/* Notes the memory of a new handle, for which so many bytes are charged (0 for an import, whose
 * size is not known yet), to the share if there is a mark. False if there is no memory for the
 * note. */
DV_HIDDEN bool object_create(object_handle handle, unsigned device, uint64_t bytes, uint64_t mark);

/* Before a driver call that releases a handle: takes its hold away. object_released then tells how
 * the call ended. False if the handle is not known; there is nothing to tell then. */
struct object_use {
    object_handle handle;
    uint32_t object;
    unsigned device;
    uint64_t more;  /* bytes for which an import has to be charged in addition */
    uint64_t mark;  /* under which the share is charged, 0 if this process is */
    uint64_t bytes; /* charged */
    bool imported;
};
DV_HIDDEN bool object_release(struct object_use *use, object_handle handle);
DV_HIDDEN void object_released(const struct object_use *use, bool done, struct ended *ended);

/* The same for a mapping that reaches up to byte `end` of the memory. more is noted as charged. For
 * an import with a mark, more is left to the caller. */
DV_HIDDEN bool object_map(struct object_use *use, object_handle handle, uint64_t end);
DV_HIDDEN bool object_mapped(const struct object_use *use, uint64_t address, uint64_t bytes,
                             bool done, struct ended *ended);

/* The same for the unmapping of a range of addresses. */
DV_HIDDEN void object_unmap(uint64_t address, uint64_t bytes);
DV_HIDDEN void object_unmapped(uint64_t address, uint64_t bytes, bool done, struct ended *ended);

/* The driver gave a handle for the memory that is mapped at an address. */
DV_HIDDEN void object_retained(object_handle handle, uint64_t address);

/* The same for an export, after which the share may be charged. `mark` is for memory that has none
 * yet; use->mark is what it has now. object_shared tells that the share is charged. */
DV_HIDDEN bool object_export(struct object_use *use, object_handle handle, uint64_t mark);
DV_HIDDEN void object_shared(const struct object_use *use);
DV_HIDDEN void object_export_done(const struct object_use *use, struct ended *ended);

/* The same for the memory of the first mapping in a range of addresses; *address becomes the end of
 * that mapping. False if there is none. */
DV_HIDDEN bool object_export_mapped(struct object_use *use, uint64_t *address, uint64_t end,
                                    uint64_t mark);

/* The memory was mapped into a sparse array, which holds it until the array ends. */
DV_HIDDEN void object_bound(object_handle handle, uint64_t array);
DV_HIDDEN void object_array_ended(uint64_t array, struct ended *ended);

#endif
