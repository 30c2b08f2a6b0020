#ifndef DIVVY_CUDA_MEMORY_VMM_H
#define DIVVY_CUDA_MEMORY_VMM_H

#include "cuda/memory/object.h"

/* A sparse array was destroyed, so it no longer holds the memory that was mapped into it. */
DV_HIDDEN void vmm_array_destroyed(const void *array);

/* Gives back what is charged for objects that ended. */
DV_HIDDEN void vmm_give_back(struct ended *ended);

#endif
