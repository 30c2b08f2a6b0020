/* NVML's handles of GPU instances and compute instances. */
#ifndef SIMGPU_NVML_INSTANCE_H
#define SIMGPU_NVML_INSTANCE_H

#include "simgpu/nvml/call.h"

/* The handles are pointers to these; the place of one in its array tells what it is. */
struct nvmlGpuInstance_st {
    unsigned char unused;
};
struct nvmlComputeInstance_st {
    unsigned char unused;
};

nvmlGpuInstance_t nvml_gpu_instance(uint32_t gpu, uint32_t gi);
/* Begins a call about a GPU instance. NVML_ERROR_INVALID_ARGUMENT where there is none. */
nvmlReturn_t nvml_enter_instance(struct nvml_call *call, nvmlGpuInstance_t handle, uint32_t *gi,
                                 const char *name);
#define NVML_GPU_INSTANCE(call, handle, gi)                                                        \
    uint32_t gi;                                                                                   \
    NVML_BEGIN(call, nvml_enter_instance(&call, handle, &gi, __func__))
/* What NVML answers for a result of the machine's functions on instances. */
nvmlReturn_t nvml_of_errno(int result);

#endif
