/*
 * Which swapped memory the program uses: what its launches, copies and fills name. Addresses that
 * stand inside structures in memory are not seen. A kernel whose parameters the driver does not tell
 * uses all of it.
 *
 * Uses are numbered in periods of a quarter of a second or so, so that what was used last is known
 * also within a turn. What a captured call names belongs to some graph, and is used whenever any
 * graph is launched.
 */
#ifndef DIVVY_CUDA_TIME_USES_H
#define DIVVY_CUDA_TIME_USES_H

#include "cuda/driver.h"
#include "cuda/time/turns.h"

/* A new period begins; the number of the present one, 0 before the first. */
DV_HIDDEN void uses_next(void);
DV_HIDDEN uint64_t uses_period(void);

/* A call with these turns (see turns.h) names an address, or launches a kernel with parameters in
 * the form of cuLaunchKernel, or launches a graph. */
DV_HIDDEN void uses_address(uint32_t turns, uint64_t address);
DV_HIDDEN void uses_kernel(uint32_t turns, const void *function, void *const *parameters,
                           void *const *extra);
DV_HIDDEN void uses_graph(uint32_t turns);

static inline bool uses_matter(const struct launch *launch) {
    return __builtin_expect((launch->turns & (TURNS_USES | TURNS_CAPTURED)) != 0, 0);
}

#endif
