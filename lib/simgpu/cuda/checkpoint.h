/* Checkpoints of the process itself. */
#ifndef SIMGPU_CUDA_CHECKPOINT_H
#define SIMGPU_CUDA_CHECKPOINT_H

#include "simgpu/cuda/driver.h"

/* Starts the thread that serves requests, where the machine's driver has checkpoints. The driver is not up yet. */
CUresult checkpoint_start(void);

#endif
