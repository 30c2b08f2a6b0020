/*
 * Arrays and mipmapped arrays, by handle. The driver tells no address of theirs and no size, so the
 * charge is computed: rows and planes padded as block-linear memory is, each array rounded up to
 * 2 MiB by itself.
 */
#ifndef DIVVY_CUDA_MEMORY_ARRAY_H
#define DIVVY_CUDA_MEMORY_ARRAY_H

#include "cuda/memory/reservation.h"

/* Bytes charged for an array of this description with so many mip levels (1 for a plain array); 0
 * for sparse and deferred arrays, which get their memory by mapping. UINT64_MAX if beyond any GPU.
 */
DV_HIDDEN uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *what, unsigned levels);

/* A context has ended, and all its arrays with it. */
DV_HIDDEN void arrays_context_ended(uint32_t owner);

#endif
