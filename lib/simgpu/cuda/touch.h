/* What operations touch of managed memory. */
#ifndef SIMGPU_CUDA_TOUCH_H
#define SIMGPU_CUDA_TOUCH_H

#include "simgpu/cuda/driver.h"

/* managed_state.c; the memory lock unless a comment says otherwise. */
extern unsigned managed_ranges; /* of this process; atomic */
/* Whether the process has any; no lock. */
static inline bool managed_any(void) {
    return __atomic_load_n(&managed_ranges, __ATOMIC_ACQUIRE) != 0;
}
/* Gives a range of some size its memory and chunks, and takes them back. */
CUresult managed_begin(struct host_range *host);
void managed_end(struct host_range *host);
/* Where the driver reads and writes the contents behind an address outside the device's; no lock. */
void *managed_contents(uint64_t address);
/* managed_map.c: the memory, and which chunks of a part the program used since the last look. */
bool managed_map(struct host_range *host);
void managed_unmap(struct host_range *host);
void managed_look(struct host_range *host, uint32_t first, uint32_t count,
                  void (*used)(uint32_t chunk));
/* The managed range that holds all of it; NULL when there is none. */
struct host_range *managed_of(CUdeviceptr address, uint64_t bytes);
/* The chunks of an area; false when it is not of managed memory. */
bool managed_area(CUdeviceptr address, uint64_t bytes, struct sg_touch *area);
bool managed_on_device(const struct host_range *host); /* whether any GPU has a part of it */
/* What the context answers since a kernel needed managed memory that could not come; no lock. */
CUresult managed_result(CUcontext ctx);

/* touch.c; no lock. */
/* Bytes from the first to the last that a copy touches on that side; more than there can be if it is too many. */
uint64_t op_extent(const struct placement *place, const struct copy *copy);
/* Areas that an operation goes through while it runs. */
struct touches {
    struct sg_touch *list;
    uint32_t count, room;
};
/* Finds them before the operation has its effect. What a copy names as the host's is touched at once. */
void touch_collect(const struct stream_op *op, struct touches *touches);

#endif
