/*
 * Allocations of cuMemAlloc that were freed with cuMemFreeAsync. The driver frees the memory when
 * the stream gets to the free, so the charge stays until a call shows that it has got there.
 */
#ifndef DIVVY_CUDA_MEMORY_LIMBO_H
#define DIVVY_CUDA_MEMORY_LIMBO_H

#include "cuda/memory/linear.h"

/* The free of an allocation, as linear_find knows it, was put into a stream. */
DV_HIDDEN void limbo_enter(uint64_t address, struct entry note, CUstream stream);

/* All work of a stream, of a context, is done. */
DV_HIDDEN void limbo_stream_done(CUstream stream);
DV_HIDDEN void limbo_context_done(uint32_t owner);

#endif
