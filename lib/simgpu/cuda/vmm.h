/* Physical memory of the virtual memory management functions. */
#ifndef SIMGPU_CUDA_VMM_H
#define SIMGPU_CUDA_VMM_H

#include "simgpu/cuda/driver.h"

struct physical {
    struct handle handle;
    struct device *device;
    CUmemAllocationProp prop;
    uint64_t size;
    uint32_t count;
    uint32_t *blocks;
    int64_t object;  /* -1 while private */
    unsigned refs;   /* handles: created, imported, retained */
    uint64_t mapped; /* pages */
    struct link of_process;
};

/* The memory that a handle means, NULL if it means none; the memory lock. */
struct physical *physical_of(CUmemGenericAllocationHandle handle);

#endif
