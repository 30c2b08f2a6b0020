/* The process's device memory while it is in host memory. */
#ifndef SIMGPU_CUDA_SAVED_H
#define SIMGPU_CUDA_SAVED_H

#include "simgpu/cuda/driver.h"

/* Copies all of it to host memory, and lets go of it and of the contexts. Nothing has changed unless it is CUDA_SUCCESS.
 * No call is inside, no work is left, and no memory is shared with other processes. */
CUresult saved_take(void);
/* Takes as much again, puts the contents there, and tells everybody where they are. `places` is as in struct sg_request.
 * Nothing has changed unless it is CUDA_SUCCESS: OUT_OF_MEMORY where there is no room. */
CUresult saved_give_back(const uint32_t places[SG_GPUS_MAX]);

/* moved.c: the device is that GPU, of the same model, from now on. */
void device_move(struct device *device, uint32_t gpu);

#endif
