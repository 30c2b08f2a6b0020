/*
 * Admission of launches to the GPU by the share's budget.
 *
 * A launch waits while the share's bucket is in debt, while this process has more unfinished work
 * on the GPU than it may have, and while a neighbour to which the share gives way has work. A launch
 * of unknown cost also waits for the turn of the whole share, if that is capped or gives way, and
 * has it until it is measured. After DV_TIME_WAIT_NS one launch of the share is admitted although
 * it should wait, because what is under way may wait for it. Of one process's waiting launches those of
 * a higher stream priority go first (precedence.h). Each stream spends up to
 * GATE_PORTION_NS before it looks at the bucket.
 */
#ifndef DIVVY_CUDA_TIME_GATE_H
#define DIVVY_CUDA_TIME_GATE_H

#include "cuda/time/flight.h"

#define GATE_PORTION_NS 200000 /* of charge */
/* Events are charged and do not wait, because a program measures with them. One that gives the stream so much of them and
 * little else has them wait like launches. */
#define GATE_RECORDS_NS 2000000

/* Waits as long as the launch has to wait. Charges the launch and what its flight owes. If the
 * stream ends meanwhile, returns what the launch answers, and the driver is not asked. A launch
 * whose stream is captured meanwhile is no work any more, and goes uncharged. */
DV_HIDDEN CUresult gate_wait(struct launch *launch);

/* What was launched in a turn is measured, or never will be. */
DV_HIDDEN void gate_turned(const struct gpu *gpu, uint64_t turn);

/* Charges what a flight owes, and ns for one more launch unless ns is 0. */
DV_HIDDEN void gate_charge(struct flight *flight, uint64_t ns, uint64_t now);

/* gate_beat tells neighbours that work is about to be launched, gate_rest that all of it is
   done. */
DV_HIDDEN void gate_beat(const struct launch *launch);
DV_HIDDEN void gate_rest(struct gpu *gpu);

#endif
