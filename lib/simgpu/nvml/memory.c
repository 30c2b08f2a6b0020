/* NVML: a device's memory. */
#include "simgpu/nvml/call.h"

/* A device's memory, or that of a MIG device's GPU instance. */
struct figures {
    uint64_t total, reserved, used;
};

static struct figures look(struct nvml_call *call) {
    struct figures f = {.total = call->gpu->memory_bytes, .reserved = call->gpu->reserved_bytes};
    const struct sg_gpu_instance *instance;

    nvml_lock_state(call);
    f.used = sg_gpu_used(call->in, call->index);
    if (call->place &&
        (instance = sg_mig_gpu_instance(call->in, call->index, sg_place_gi(call->place)))) {
        f.total = call->machine->mig_profiles[instance->profile].memory_mib << 20;
        f.reserved = sg_mig_reserved(call->in, instance->profile);
        f.used = (instance->used_blocks + instance->resident) * SG_BLOCK_BYTES;
    }
    sg_state_unlock(call->in);
    return f;
}

/* The first form counts what the driver reserves as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    NVML_ANY_DEVICE(call, device)
    NVML_REQUIRE(memory);
    struct figures f = look(&call);
    memory->total = f.total;
    memory->used = f.reserved + f.used;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    NVML_ANY_DEVICE(call, device)
    NVML_REQUIRE(memory);
    if (memory->version != NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    struct figures f = look(&call);
    memory->total = f.total;
    memory->reserved = f.reserved;
    memory->used = f.used;
    memory->free = memory->total - memory->reserved - memory->used;
    return NVML_SUCCESS;
}

#define MIB (1ull << 20)

/* The driver maps little of the memory for the CPU: 1 MiB. Of a GPU whose window has 65536 MiB, the MIG user guide shows
 * 8191, 16383 and 32767 MiB for instances of one, two and four slices in eight, with none in use. */
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
    NVML_ANY_DEVICE(call, device)
    NVML_REQUIRE(memory);
    memory->bar1Total = call.gpu->bar1_bytes;
    memory->bar1Used = MIB;
    if (call.place) {
        uint32_t profile =
            call.in->state->gpus[call.index].mig.instances[sg_place_gi(call.place)].profile;
        memory->bar1Total = memory->bar1Total / call.machine->mig_slices *
                                call.machine->mig_profiles[profile].size -
                            MIB;
        memory->bar1Used = 0;
    }
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
