/* NVML: GPU instances. */
#define _GNU_SOURCE
#include "simgpu/nvml/instance.h"

#include <errno.h>
#include <stdio.h>

static struct nvmlGpuInstance_st handles[SG_GPUS_MAX * SG_MIG_GPU_INSTANCES];

nvmlGpuInstance_t nvml_gpu_instance(uint32_t gpu, uint32_t gi) {
    return &handles[gpu * SG_MIG_GPU_INSTANCES + gi];
}

nvmlReturn_t nvml_enter_instance(struct nvml_call *call, nvmlGpuInstance_t handle, uint32_t *gi,
                                 const char *name) {
    uintptr_t first = (uintptr_t)handles, at = (uintptr_t)handle;

    if (at < first || at >= first + sizeof handles) {
        return nvml_in_use() ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_UNINITIALIZED;
    }
    uint32_t number = (uint32_t)((at - first) / sizeof *handles);
    nvmlReturn_t result = nvml_enter_device(call, nvml_handle(number / SG_MIG_GPU_INSTANCES), name);
    *gi = number % SG_MIG_GPU_INSTANCES;
    if (result == NVML_SUCCESS && !sg_mig_gpu_instance(call->in, call->index, *gi)) {
        result = NVML_ERROR_INVALID_ARGUMENT;
    }
    return result;
}

nvmlReturn_t nvml_of_errno(int result) {
    switch (result) {
    case -EINVAL:
        return NVML_ERROR_INVALID_ARGUMENT;
    case -ENOSPC:
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    case -EBUSY:
        return NVML_ERROR_IN_USE;
    default:
        return result < 0 ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
    }
}

/* The profile of that NVML_GPU_INSTANCE_PROFILE_ number. */
static nvmlReturn_t by_kind(const struct nvml_call *call, unsigned int kind,
                            const sim_mig_profile **profile) {
    NVML_REQUIRE(kind < NVML_GPU_INSTANCE_PROFILE_COUNT);
    for (uint32_t i = 0; i < call->machine->mig_profile_count; i++) {
        *profile = &call->machine->mig_profiles[i];
        if ((*profile)->kind == kind) {
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_SUPPORTED;
}

/* The place of the profile with that id, on a GPU in MIG mode. */
static nvmlReturn_t by_id(const struct nvml_call *call, unsigned int id, uint32_t *profile) {
    if (!sg_mig_on(call->in, call->index)) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    for (*profile = 0; *profile < call->machine->mig_profile_count; ++*profile) {
        if (call->machine->mig_profiles[*profile].id == id) {
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_INVALID_ARGUMENT;
}

/* What all three forms of the answer tell. */
#define PROFILE_MEMBERS(p)                                                                         \
    .id = (p)->id, .sliceCount = (p)->slices, .instanceCount = (p)->instances,                     \
    .multiprocessorCount = (p)->multiprocessors, .copyEngineCount = (p)->copy_engines,             \
    .decoderCount = (p)->decoders, .jpegCount = (p)->jpegs, .ofaCount = (p)->ofas,                 \
    .memorySizeMB = (p)->memory_mib

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile,
                                                 nvmlGpuInstanceProfileInfo_t *info) {
    const sim_mig_profile *p;

    NVML_DEVICE(call, device)
    NVML_REQUIRE(info);
    nvmlReturn_t result = by_kind(&call, profile, &p);
    if (result == NVML_SUCCESS) {
        *info = (nvmlGpuInstanceProfileInfo_t){PROFILE_MEMBERS(p)};
    }
    return result;
}

/* The second or third form, as the version says. */
static nvmlReturn_t describe(const sim_mig_profile *p, nvmlGpuInstanceProfileInfo_v2_t *info) {
    unsigned int version = info->version;
    char *text;

    if (version == NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2)) {
        *info = (nvmlGpuInstanceProfileInfo_v2_t){.version = version, PROFILE_MEMBERS(p)};
        text = info->name;
    } else if (version == NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v3_t, 3)) {
        nvmlGpuInstanceProfileInfo_v3_t *third = (nvmlGpuInstanceProfileInfo_v3_t *)(void *)info;
        *third = (nvmlGpuInstanceProfileInfo_v3_t){.version = version, PROFILE_MEMBERS(p)};
        text = third->name;
    } else {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    snprintf(text, sizeof info->name, "MIG %.23s", p->name);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int profile,
                                                  nvmlGpuInstanceProfileInfo_v2_t *info) {
    const sim_mig_profile *p;

    NVML_DEVICE(call, device)
    NVML_REQUIRE(info);
    nvmlReturn_t result = by_kind(&call, profile, &p);
    return result == NVML_SUCCESS ? describe(p, info) : result;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int id,
                                                      nvmlGpuInstanceProfileInfo_v2_t *info) {
    uint32_t profile;

    NVML_DEVICE(call, device)
    NVML_REQUIRE(info);
    nvmlReturn_t result = by_id(&call, id, &profile);
    return result == NVML_SUCCESS ? describe(&call.machine->mig_profiles[profile], info) : result;
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id,
                                                           nvmlGpuInstancePlacement_t *placements,
                                                           unsigned int *count) {
    uint32_t profile;
    unsigned int n = 0;

    NVML_DEVICE(call, device)
    NVML_REQUIRE(count);
    nvmlReturn_t result = by_id(&call, id, &profile);
    if (result != NVML_SUCCESS) {
        return result;
    }
    const sim_mig_profile *p = &call.machine->mig_profiles[profile];
    for (uint32_t start = 0; start < call.machine->mig_slices; start++) {
        if (p->starts >> start & 1) {
            if (placements) {
                placements[n] = (nvmlGpuInstancePlacement_t){.start = start, .size = p->size};
            }
            n++;
        }
    }
    *count = n;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, unsigned int id,
                                                        nvmlGpuInstancePlacement_t *placements,
                                                        unsigned int *count) {
    return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, id, placements, count);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id,
                                                       unsigned int *count) {
    uint32_t profile;

    NVML_DEVICE(call, device)
    NVML_REQUIRE(count);
    nvmlReturn_t result = by_id(&call, id, &profile);
    if (result == NVML_SUCCESS) {
        sg_state_lock(call.in);
        *count = sg_mig_remaining(call.in, call.index, profile);
        sg_state_unlock(call.in);
    }
    return result;
}

static nvmlReturn_t create(struct nvml_call *call, unsigned int id, uint32_t start,
                           nvmlGpuInstance_t *instance) {
    uint32_t profile;
    nvmlReturn_t result = by_id(call, id, &profile);

    if (result != NVML_SUCCESS) {
        return result;
    }
    if (!sg_is_owner(call->in)) {
        return NVML_ERROR_NO_PERMISSION;
    }
    sg_state_lock(call->in);
    int gi = sg_mig_create(call->in, call->index, profile, start);
    sg_state_unlock(call->in);
    if (gi >= 0) {
        sg_mig_files(call->in, call->index);
        *instance = nvml_gpu_instance(call->index, (uint32_t)gi);
    }
    return nvml_of_errno(gi);
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int id,
                                         nvmlGpuInstance_t *instance) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(instance);
    return create(&call, id, SG_MIG_ANYWHERE, instance);
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int id,
                                                      const nvmlGpuInstancePlacement_t *placement,
                                                      nvmlGpuInstance_t *instance) {
    uint32_t profile;

    NVML_DEVICE(call, device)
    NVML_REQUIRE(placement && instance && placement->start != SG_MIG_ANYWHERE);
    nvmlReturn_t result = by_id(&call, id, &profile);
    if (result != NVML_SUCCESS) {
        return result;
    }
    NVML_REQUIRE(placement->size == call.machine->mig_profiles[profile].size);
    return create(&call, id, placement->start, instance);
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance) {
    NVML_GPU_INSTANCE(call, instance, gi)
    if (!sg_is_owner(call.in)) {
        return NVML_ERROR_NO_PERMISSION;
    }
    sg_state_lock(call.in);
    int result = sg_mig_destroy(call.in, call.index, gi);
    sg_state_unlock(call.in);
    sg_mig_files(call.in, call.index);
    return nvml_of_errno(result);
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int id,
                                       nvmlGpuInstance_t *instances, unsigned int *count) {
    uint32_t profile;
    unsigned int n = 0;

    NVML_DEVICE(call, device)
    NVML_REQUIRE(instances && count);
    nvmlReturn_t result = by_id(&call, id, &profile);
    for (uint32_t i = 0; result == NVML_SUCCESS && i < SG_MIG_GPU_INSTANCES; i++) {
        const struct sg_gpu_instance *instance = sg_mig_gpu_instance(call.in, call.index, i);
        if (instance && instance->profile == profile) {
            instances[n++] = nvml_gpu_instance(call.index, i);
        }
    }
    *count = n;
    return result;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
                                          nvmlGpuInstance_t *instance) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(instance);
    if (!sg_mig_on(call.in, call.index)) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    if (!sg_mig_gpu_instance(call.in, call.index, id)) {
        return NVML_ERROR_NOT_FOUND;
    }
    *instance = nvml_gpu_instance(call.index, id);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
    NVML_GPU_INSTANCE(call, instance, gi)
    NVML_REQUIRE(info);
    struct sg_gpu_instance i = call.in->state->gpus[call.index].mig.instances[gi];
    const sim_mig_profile *p = &call.machine->mig_profiles[i.profile];
    *info = (nvmlGpuInstanceInfo_t){.device = nvml_handle(call.index),
                                    .id = gi,
                                    .profileId = p->id,
                                    .placement = {.start = i.start, .size = p->size}};
    return NVML_SUCCESS;
}
