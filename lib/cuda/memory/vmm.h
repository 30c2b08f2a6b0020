#ifndef DIVVY_CUDA_MEMORY_VMM_H
#define DIVVY_CUDA_MEMORY_VMM_H

#include "substitute/substitute.h"

/* A sparse array was destroyed: memory that was mapped into it is held by it no more. */
DV_HIDDEN void vmm_array_destroyed(const void *array);

#endif
