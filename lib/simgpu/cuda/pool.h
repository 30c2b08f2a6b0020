/* A memory pool. */
#ifndef SIMGPU_CUDA_POOL_H
#define SIMGPU_CUDA_POOL_H

#include "simgpu/cuda/driver.h"

struct CUmemPoolHandle_st {
    struct handle handle;
    struct device *device;
    CUmemPoolProps props;
    bool is_default;
    bool imported;      /* of another process: only pointers come out of it */
    bool ended;         /* destroyed while pointers of it lived */
    int reuse[3];       /* the attributes 1 to 3 */
    uint64_t threshold; /* bytes to keep when a synchronisation gives memory back */
    uint64_t reserved, reserved_high;
    uint64_t used, used_high;
    uint64_t chunks;
    CUmemAccess_flags access[SG_GPUS_MAX]; /* per device ordinal */
    struct heap *small, *large;
    struct link ranges; /* chunks: struct range.of_context */
    struct link of_device;
};

/* A pool of that device without memory; NULL when there is no room for it. */
CUmemoryPool pool_new(struct device *device, const CUmemPoolProps *props);
/* Gives empty chunks back until at most `keep` bytes are reserved; the memory lock. */
void pool_trim(CUmemoryPool pool, uint64_t keep);

#endif
