#ifndef DIVVY_CUDA_MEMORY_VMM_H
#define DIVVY_CUDA_MEMORY_VMM_H

#include "substitute/substitute.h"

#include <stdbool.h>

/* A sparse array was destroyed: memory that was mapped into it is held by it no more. */
DV_HIDDEN void vmm_array_destroyed(const void *array);

/* Gives back what was exported and whose descriptors are closed by now; true if there was any. */
DV_HIDDEN bool vmm_reread(void);

#endif
