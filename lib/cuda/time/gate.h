/*
 * Admission of launches to the GPU by the share's budget.
 *
 * A launch waits while the share's bucket is in debt, while this process has more unfinished work
 * on the GPU than it may have, and while a neighbour to which the share gives way has work. After
 * DV_TIME_WAIT_NS it is admitted on debt, so a share cannot block a program for good. Each stream
 * spends up to GATE_PORTION_NS before it looks at the bucket.
 */
#ifndef DIVVY_CUDA_TIME_GATE_H
#define DIVVY_CUDA_TIME_GATE_H

#include "cuda/time/flight.h"

#define GATE_PORTION_NS 200000 /* of charge */

/* Waits as long as the launch has to wait. Charges the launch and what its flight owes. */
DV_HIDDEN void gate_wait(struct launch *launch);

/* Charges what a flight owes, and ns for one more launch unless ns is 0. */
DV_HIDDEN void gate_charge(struct flight *flight, uint64_t ns, uint64_t now);

/* gate_beat tells neighbours that work is about to be launched, gate_rest that all of it is
   done. */
DV_HIDDEN void gate_beat(const struct launch *launch);
DV_HIDDEN void gate_rest(struct gpu *gpu);

#endif
