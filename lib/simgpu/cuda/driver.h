/* What the files of this folder offer one another. */
#ifndef SIMGPU_CUDA_DRIVER_H
#define SIMGPU_CUDA_DRIVER_H

#include "simgpu/cuda/memory.h"
#include "simgpu/cuda/process.h"
#include "simgpu/cuda/work.h"

#endif
