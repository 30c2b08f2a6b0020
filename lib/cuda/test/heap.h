#ifndef DIVVY_CUDA_TEST_HEAP_H
#define DIVVY_CUDA_TEST_HEAP_H

#include "cuda/test/driver.h"

#define HEAP_BLOCK ((size_t)2 << 20)

/* The memory of the fake driver: addresses without contents, in blocks of 2 MiB as on a GPU. Each
 * call costs the same, whatever is live. heap_take returns 0 when there is no room. */
CUdeviceptr heap_take(size_t bytes);
CUresult heap_give(CUdeviceptr address);

#endif
