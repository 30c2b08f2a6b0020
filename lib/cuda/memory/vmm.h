#ifndef DIVVY_CUDA_MEMORY_VMM_H
#define DIVVY_CUDA_MEMORY_VMM_H

#include "substitute/substitute.h"

/* A sparse array was destroyed, so it no longer holds the memory that was mapped into it. */
DV_HIDDEN void vmm_array_destroyed(const void *array);

#endif
