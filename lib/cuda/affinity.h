/*
 * The execution affinity with which a client of MPS may ask for a part of the multiprocessors for one
 * context. That it can only tighten the client's percentage is documented nowhere, so it is made so.
 */
#ifndef DIVVY_CUDA_AFFINITY_H
#define DIVVY_CUDA_AFFINITY_H

#include "cuda/driver.h"

#define AFFINITIES_MAX 16 /* of one context; there is one type of them */

/* Room for what the driver is given instead. */
struct affinity {
    CUexecAffinityParam list[AFFINITIES_MAX];
    CUctxCreateParams params;
};

/* What to give to the driver: the same with every number of multiprocessors cut to those that the
 * driver tells as the device's, which are the client's under MPS. NULL, which the driver refuses, if
 * there are more than AFFINITIES_MAX. */
DV_HIDDEN CUexecAffinityParam *affinity_cut(struct affinity *room, CUdevice device,
                                            CUexecAffinityParam *given, int count);
DV_HIDDEN CUctxCreateParams *affinity_cut_params(struct affinity *room, CUdevice device,
                                                 CUctxCreateParams *given);

#endif
