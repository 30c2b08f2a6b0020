/*
 * Admission of launches to the GPU by the share's budget.
 *
 * A launch waits while the share's bucket is in debt, while this process has more unfinished work
 * on the GPU than it may, and while a neighbour to which the share gives way has work; after
 * DV_TIME_WAIT_NS it is admitted on debt, so that no program can be locked up by its share. Work of
 * up to GATE_PORTION_NS per stream is spent before the bucket is looked at.
 */
#ifndef DIVVY_CUDA_TIME_GATE_H
#define DIVVY_CUDA_TIME_GATE_H

#include "cuda/time/flight.h"

#define GATE_PORTION_NS 200000 /* of charge */

/* Waits as long as the launch has to, and charges it with what its flight owes. */
DV_HIDDEN void gate_wait(struct launch *launch);

/* Charges what a flight owes and ns for so many launches more. */
DV_HIDDEN void gate_charge(struct flight *flight, uint64_t ns, uint64_t now);

/* Tells neighbours of work before it is launched, and of rest when all of it is done. */
DV_HIDDEN void gate_beat(const struct launch *launch);
DV_HIDDEN void gate_rest(struct gpu *gpu);

#endif
