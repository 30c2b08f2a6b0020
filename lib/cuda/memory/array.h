/*
 * Arrays and mipmapped arrays, by handle. The driver tells neither their address nor their size, so
 * the charge is computed: rows and planes are padded as in block-linear memory, and each array is
 * rounded up to 2 MiB.
 */
#ifndef DIVVY_CUDA_MEMORY_ARRAY_H
#define DIVVY_CUDA_MEMORY_ARRAY_H

#include "cuda/memory/reservation.h"

/* Bytes to charge for an array of this description with so many mip levels (1 for a plain array). 0
 * for sparse and deferred arrays, which get their memory by mapping. UINT64_MAX if the size does
 * not fit into 64 bits. */
DV_HIDDEN uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *what, unsigned levels);

/* A context has ended, and all its arrays with it. */
DV_HIDDEN void arrays_context_ended(uint32_t owner);

#endif
