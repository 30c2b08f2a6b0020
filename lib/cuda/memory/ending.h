/*
 * What ends with a context.
 */
#ifndef DIVVY_CUDA_MEMORY_ENDING_H
#define DIVVY_CUDA_MEMORY_ENDING_H

#include "cuda/context.h"

/* The driver has destroyed a context: gives back the charges of all that it owned, and its
 * overhead. */
DV_HIDDEN void context_ended(struct home home);

/* The same for the memory alone. */
DV_HIDDEN void context_memory_ended(struct home home);

#endif
