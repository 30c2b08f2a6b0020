/*
 * What is different in a swap share: linear and pitched memory is managed memory, which can leave
 * the GPU. It is told to the program as the device memory that it asked for.
 */
#ifndef DIVVY_CUDA_MEMORY_SWAP_H
#define DIVVY_CUDA_MEMORY_SWAP_H

#include "cuda/memory/reservation.h"
#include "cuda/memory/swapped.h"

/* Set once, when the share is attached. */
DV_HIDDEN extern bool swap_on;

/* Whether the share is a swap share. False while there is no share, so that nothing was allocated. */
static inline bool swaps(void) {
    return __builtin_expect(__atomic_load_n(&swap_on, __ATOMIC_RELAXED), 0);
}

/* Serve a reserved allocation of linear or pitched memory. */
DV_HIDDEN CUresult swap_alloc(struct reservation *reservation, CUdeviceptr *address, size_t bytes);
DV_HIDDEN CUresult swap_alloc_pitch(struct reservation *reservation, CUdeviceptr *address,
                                    size_t *pitch, size_t width, size_t height, unsigned element);

/* The driver has answered a reserved allocation of managed memory. Notes it, or frees it if that
 * fails. */
DV_HIDDEN CUresult swap_made(struct reservation *reservation, CUresult result,
                             const struct swapped *memory, CUdeviceptr *address);

/* The driver has answered that it frees memory in the order of a stream, or that it does not do that
 * for managed memory, as converted memory is. Then the caller has it wait in limbo; when the stream
 * has got there, swap_free_ending frees it. That is false if the driver then refuses, and true for
 * all that was not freed so. */
DV_HIDDEN CUresult swap_free_async(CUresult result, CUdeviceptr address, CUstream stream);
DV_HIDDEN bool swap_free_ending(CUdeviceptr address);

/* Whether an address lies in memory that the program takes for device memory. Only in a swap share. */
DV_HIDDEN bool swap_converted(CUdeviceptr address, struct swapped *memory);

/* The driver's functions for managed memory refuse device memory. Such an address is replaced by one
 * at which there is nothing, so that the driver refuses it after all else that it looks at. The
 * second does that for a list of which any is such memory: *count is 1 then. */
DV_HIDDEN CUdeviceptr swap_told(CUdeviceptr address);
DV_HIDDEN CUdeviceptr *swap_told_all(CUdeviceptr *addresses, size_t *count);

#endif
