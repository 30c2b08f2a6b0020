/*
 * Gives back all charges that end with a context.
 */
#ifndef DIVVY_CUDA_MEMORY_ENDING_H
#define DIVVY_CUDA_MEMORY_ENDING_H

#include "cuda/context.h"

/* The driver has destroyed a context. Gives back the charges for its memory, and its overhead. */
DV_HIDDEN void context_ended(struct home home);

/* Gives back the charges for its memory alone. */
DV_HIDDEN void context_memory_ended(struct home home);

#endif
