/* NVML: a device's memory. */
#include "simgpu/nvml/call.h"

static uint64_t used_by_processes(struct nvml_call *call) {
    uint64_t used;

    nvml_lock_state(call);
    used = sg_gpu_used(call->in, call->index);
    sg_state_unlock(call->in);
    return used;
}

/* The first form counts what the driver reserves as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(memory);
    memory->total = call.gpu->memory_bytes;
    memory->used = call.gpu->reserved_bytes + used_by_processes(&call);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(memory);
    if (memory->version != NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    memory->total = call.gpu->memory_bytes;
    memory->reserved = call.gpu->reserved_bytes;
    memory->used = used_by_processes(&call);
    memory->free = memory->total - memory->reserved - memory->used;
    return NVML_SUCCESS;
}

/* The driver maps little of the memory for the CPU: 1 MiB. */
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(memory);
    memory->bar1Total = call.gpu->bar1_bytes;
    memory->bar1Used = 1u << 20;
    memory->bar1Free = memory->bar1Total - memory->bar1Used;
    return NVML_SUCCESS;
}

/* Confidential computing is off: all memory is unprotected. */
nvmlReturn_t nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t device,
                                                 nvmlConfComputeMemSizeInfo_t *size) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(size);
    size->protectedMemSizeKib = 0;
    size->unprotectedMemSizeKib = call.gpu->memory_bytes >> 10;
    return NVML_SUCCESS;
}
