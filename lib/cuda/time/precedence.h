/*
 * Of the launches of this process that wait for the budget of one GPU, those of a higher stream
 * priority go first. The driver's numbers: a lower one goes before a higher one, 0 goes last.
 *
 * A waiting launch is noted with the time until which that holds, and is noted anew at each look at
 * the budget. So a thread that ends while it waits holds up others only for a moment. Priority 0
 * needs no note, because nobody goes after it.
 */
#ifndef DIVVY_CUDA_TIME_PRECEDENCE_H
#define DIVVY_CUDA_TIME_PRECEDENCE_H

#include "cuda/driver.h"
#include "cuda/time/gpu.h"

/* A launch that waits. */
struct precedence {
    int priority;
    struct waiter *place; /* where it is noted, NULL: nowhere */
};

/* The priority of a stream that the program has named in this call. */
DV_HIDDEN int precedence_of(CUstream stream);

/* Notes that the launch will wait until then. */
DV_HIDDEN void precedence_note(struct gpu *gpu, struct precedence *launch, uint64_t now,
                               uint64_t until);
DV_HIDDEN void precedence_end(struct precedence *launch);

/* Whether a launch into this stream has to go after one that waits. Asks the driver only if
 * anything of a higher priority than 0 waits. */
DV_HIDDEN bool precedence_yields(const struct gpu *gpu, CUstream stream, uint64_t now);

#endif
