/* Building copies and giving them to streams; shared by the files of one- to three-dimensional
 * copies. */
#ifndef SIMGPU_CUDA_COPY_H
#define SIMGPU_CUDA_COPY_H

#include "simgpu/cuda/driver.h"

/* How a call relates to its stream. */
enum copy_way {
    COPY_SYNC,      /* the default stream; returns when the copy is done */
    COPY_SYNC_PTDS, /* the thread's own default stream */
    COPY_ASYNC,
    COPY_ASYNC_PTSZ,
};

static inline struct placement place_host(const void *at) {
    return (struct placement){.type = CU_MEMORYTYPE_HOST, .address = (uintptr_t)at};
}
static inline struct placement place_device(CUdeviceptr at) {
    return (struct placement){.type = CU_MEMORYTYPE_DEVICE, .address = at};
}
static inline struct placement place_unified(CUdeviceptr at) {
    return (struct placement){.type = CU_MEMORYTYPE_UNIFIED, .address = at};
}
/* An offset in bytes into an array of one row. */
static inline struct placement place_array(CUarray array, size_t offset) {
    return (struct placement){.type = CU_MEMORYTYPE_ARRAY, .array = array, .x = offset};
}

/* Gives the copy to the stream of the call, which `name` is. */
CUresult copy_give(const struct copy *copy, CUstream handle, enum copy_way way, const char *name);
/* The same for one row. */
CUresult copy_row(struct placement to, struct placement from, size_t bytes, CUstream handle,
                  enum copy_way way, const char *name);
/* Copies of a description. */
struct copy copy_of_2d(const CUDA_MEMCPY2D *what);
struct copy copy_of_3d(const CUDA_MEMCPY3D *what);

#endif
