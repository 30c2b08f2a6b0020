/*
 * Local memory of kernels. The driver raises a context's stack for a launch that needs more, and
 * leaves it so.
 *
 * To look every kernel up at every launch would cost more than most launches. So kernels that the
 * program got are suspects until their first launch tells that they need no more than a context has
 * anyway. A small table of counts by handle, in the cache, says that a kernel is none.
 */
#ifndef DIVVY_CUDA_MEMORY_LOCAL_H
#define DIVVY_CUDA_MEMORY_LOCAL_H

#include "cuda/memory/growth.h"

#define LOCAL_COUNTS 2048u
DV_HIDDEN extern uint16_t local_counts[LOCAL_COUNTS];

/* The program got a kernel, by the handle of a function, or of a kernel of no context. */
DV_HIDDEN void local_met(const void *handle, bool contextless);

/* Whether a launch of the kernel has to be announced. Seldom true for another kernel. */
static inline bool local_suspected(const void *handle) {
    uint64_t place = (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15) >> 53;
    return __builtin_expect(__atomic_load_n(&local_counts[place], __ATOMIC_RELAXED) != 0, 0);
}
_Static_assert(LOCAL_COUNTS == 1u << (64 - 53), "the hash chooses one of them");

/* Around the driver call that launches a suspect into a stream, which may be one of the names of
 * default streams. Ends with growth_end. */
DV_HIDDEN CUresult local_launch(struct growth *growth, const void *handle, CUstream stream);

/* A suspect becomes part of a graph; a graph is launched, or prepared, with all that it may have. */
DV_HIDDEN void local_in_graph(const void *handle);
DV_HIDDEN CUresult local_graph(struct growth *growth, CUstream stream);

#endif
