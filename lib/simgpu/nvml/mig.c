/* NVML: the MIG mode, and MIG devices. */
#define _GNU_SOURCE
#include "simgpu/nvml/call.h"

#include <errno.h>

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is) {
    NVML_ANY_DEVICE(call, device)
    NVML_REQUIRE(is);
    *is = call.place != 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current,
                                  unsigned int *pending) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(current && pending);
    if (!call.gpu->mig) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    sg_state_lock(call.in);
    *current = call.in->state->gpus[call.index].mig.on;
    *pending = call.in->state->gpus[call.index].mig.pending;
    sg_state_unlock(call.in);
    return NVML_SUCCESS;
}

/* MIG user guide: the mode needs a reset on Ampere, and none from Hopper on. nvml.h: the call "may unbind or reset the
 * device to activate the requested mode", and where a reset is not exposed, as with a GPU that was passed through to a virtual
 * machine, the activation status says that one is required. */
nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *status) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(status && mode <= NVML_DEVICE_MIG_ENABLE);
    if (!call.gpu->mig) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    if (!sg_is_owner(call.in)) {
        return NVML_ERROR_NO_PERMISSION;
    }
    sg_state_lock(call.in);
    int result = sg_mig_set(call.in, call.index, mode == NVML_DEVICE_MIG_ENABLE,
                            call.gpu->architecture <= NVML_DEVICE_ARCH_AMPERE);
    sg_state_unlock(call.in);
    sg_mig_files(call.in, call.index);
    *status = result == -EBUSY    ? NVML_ERROR_IN_USE
              : result == -EAGAIN ? NVML_ERROR_RESET_REQUIRED
                                  : NVML_SUCCESS;
    return NVML_SUCCESS;
}

/* "Returns zero if MIG is not supported or enabled." One for each compute slice. */
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(count);
    *count = 0;
    for (uint32_t i = 0; sg_mig_on(call.in, call.index) && i < call.machine->mig_profile_count;
         i++) {
        unsigned int slices = call.machine->mig_profiles[i].slices;
        *count = slices > *count ? slices : *count;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *instance) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(instance && index < SG_MIG_COMPUTE_INSTANCES);
    if (!call.gpu->mig) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    for (uint32_t place = 0; (place = sg_mig_next(call.in, call.index, place)) != 0; place++) {
        if (index-- == 0) {
            *instance = nvml_mig_handle(place);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t instance,
                                                          nvmlDevice_t *device) {
    NVML_ANY_DEVICE(call, instance)
    NVML_REQUIRE(device && call.place);
    *device = nvml_handle(call.index);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
    NVML_ANY_DEVICE(call, device)
    NVML_REQUIRE(id);
    if (call.place == 0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *id = sg_place_gi(call.place);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) {
    NVML_ANY_DEVICE(call, device)
    NVML_REQUIRE(id);
    if (call.place == 0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *id = sg_place_ci(call.place);
    return NVML_SUCCESS;
}

/* "This API currently only supports MIG device handles." */
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    NVML_ANY_DEVICE(call, device)
    NVML_REQUIRE(attributes);
    if (call.place == 0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    sg_state_lock(call.in);
    const struct sg_gpu_instance *gi =
        sg_mig_gpu_instance(call.in, call.index, sg_place_gi(call.place));
    const struct sg_compute_instance *ci = sg_mig_compute_instance(call.in, call.place);
    if (gi && ci) {
        const sim_mig_profile *p = &call.machine->mig_profiles[gi->profile];
        *attributes = (nvmlDeviceAttributes_t){
            .multiprocessorCount = sg_mig_multiprocessors(call.in, gi->profile, ci->size),
            .sharedCopyEngineCount = p->copy_engines,
            .sharedDecoderCount = p->decoders,
            .sharedJpegCount = p->jpegs,
            .sharedOfaCount = p->ofas,
            .gpuInstanceSliceCount = p->slices,
            .computeInstanceSliceCount = ci->size,
            .memorySizeMB = p->memory_mib,
        };
    }
    sg_state_unlock(call.in);
    return gi && ci ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    return nvmlDeviceGetAttributes_v2(device, attributes);
}
