/*
 * A share under MPS: its processes are clients of the control daemon that the share's page names.
 *
 * Before driver 615 a daemon's limits hold for all clients of a server alike; only a client's own
 * variables tighten them for one client (NVIDIA, Multi-Process Service, "Environment Variables"). The
 * driver reads the pipe directory in cuInit (traced with 535, 550 and 555) and goes on without MPS
 * and its limits where no daemon answers there. The percentage of threads is read at every context
 * where CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING is set, which is hidden from it.
 */
#ifndef DIVVY_CUDA_MPS_H
#define DIVVY_CUDA_MPS_H

#include "abi/cuda/types.h"
#include "cuda/environment.h"
#include "share/share.h"

/* Adds what the driver has to be shown to the environment of a share under MPS. visible: the driver
 * is shown the share's GPU, which is then its only one and has ordinal 0. Called once. */
void mps_variables(const dv_share *share, bool visible, struct environment *environment);

/* Whether the control daemon answers, which takes some seconds at most. CUDA_SUCCESS without MPS;
 * CUDA_ERROR_MPS_CONNECTION_FAILED, and a line in the log, if it does not, is another user's, or is
 * not *daemon. *daemon is its process as this pid namespace shows it, before the first call -1. */
CUresult mps_reach(const dv_share *share, pid_t *daemon);

#endif
