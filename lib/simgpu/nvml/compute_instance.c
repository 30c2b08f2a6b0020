/* NVML: compute instances. Their profiles' ids are the NVML_COMPUTE_INSTANCE_PROFILE_ numbers, as `nvidia-smi mig
 * -lcip` shows. */
#define _GNU_SOURCE
#include "simgpu/nvml/instance.h"

#include <stdio.h>
#include <string.h>

static struct nvmlComputeInstance_st
    handles[SG_GPUS_MAX * SG_MIG_GPU_INSTANCES * SG_MIG_COMPUTE_INSTANCES];

static nvmlComputeInstance_t handle_of(const struct nvml_call *call, uint32_t gi, uint32_t ci) {
    return &handles[sg_place_of(call->index, gi, ci) - 1];
}

static const unsigned int slices_of[NVML_COMPUTE_INSTANCE_PROFILE_COUNT] = {
    [NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE] = 1, [NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE] = 2,
    [NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE] = 3, [NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE] = 4,
    [NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE] = 7,
};

static unsigned int kind_of(unsigned int slices) {
    unsigned int kind = 0;

    while (kind + 1 < NVML_COMPUTE_INSTANCE_PROFILE_COUNT && slices_of[kind] != slices) {
        kind++;
    }
    return kind;
}

/* The starts that a profile can have in a GPU instance. */
static nvmlReturn_t starts_of(const struct nvml_call *call, uint32_t gi, unsigned int profile,
                              uint32_t *starts) {
    NVML_REQUIRE(profile < NVML_COMPUTE_INSTANCE_PROFILE_COUNT);
    *starts = sg_mig_compute_starts(call->in, call->index, gi, slices_of[profile]);
    return *starts ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t describe(const struct nvml_call *call, uint32_t gi, unsigned int profile,
                             unsigned int engines, nvmlComputeInstanceProfileInfo_v2_t *info) {
    uint32_t starts, place = call->in->state->gpus[call->index].mig.instances[gi].profile;
    const sim_mig_profile *p = &call->machine->mig_profiles[place];

    NVML_REQUIRE(info && engines == NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED);
    nvmlReturn_t result = starts_of(call, gi, profile, &starts);
    if (result != NVML_SUCCESS) {
        return result;
    }
    unsigned int slices = slices_of[profile];
    *info = (nvmlComputeInstanceProfileInfo_v2_t){
        .id = profile,
        .sliceCount = slices,
        .instanceCount = (unsigned int)__builtin_popcount(starts),
        .multiprocessorCount = sg_mig_multiprocessors(call->in, place, slices),
        .sharedCopyEngineCount = p->copy_engines,
        .sharedDecoderCount = p->decoders,
        .sharedJpegCount = p->jpegs,
        .sharedOfaCount = p->ofas,
    };
    if (slices == p->slices) {
        snprintf(info->name, sizeof info->name, "MIG %.23s", p->name);
    } else {
        snprintf(info->name, sizeof info->name, "MIG %uc.%.23s", slices, p->name);
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance,
                                                          unsigned int profile,
                                                          unsigned int engines,
                                                          nvmlComputeInstanceProfileInfo_t *info) {
    nvmlComputeInstanceProfileInfo_v2_t whole;

    NVML_GPU_INSTANCE(call, instance, gi)
    NVML_REQUIRE(info);
    nvmlReturn_t result = describe(&call, gi, profile, engines, &whole);
    if (result == NVML_SUCCESS) {
        memcpy(info, &whole.id, sizeof *info); /* the same members in the same order */
    }
    return result;
}

nvmlReturn_t
nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned int profile,
                                              unsigned int engines,
                                              nvmlComputeInstanceProfileInfo_v2_t *info) {
    nvmlComputeInstanceProfileInfo_v2_t whole;

    NVML_GPU_INSTANCE(call, instance, gi)
    NVML_REQUIRE(info);
    unsigned int version = info->version;
    bool third = version == NVML_STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v3_t, 3);
    if (!third && version != NVML_STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2)) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    nvmlReturn_t result = describe(&call, gi, profile, engines, &whole);
    if (result == NVML_SUCCESS) {
        whole.version = version;
        *info = whole;
        if (third) {
            ((nvmlComputeInstanceProfileInfo_v3_t *)(void *)info)->capabilities = 0;
        }
    }
    return result;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(
    nvmlGpuInstance_t instance, unsigned int profile, nvmlComputeInstancePlacement_t *placements,
    unsigned int *count) {
    uint32_t starts;
    unsigned int n = 0;

    NVML_GPU_INSTANCE(call, instance, gi)
    NVML_REQUIRE(count);
    nvmlReturn_t result = starts_of(&call, gi, profile, &starts);
    for (uint32_t start = 0; result == NVML_SUCCESS && start < 8; start++) {
        if (starts >> start & 1) {
            if (placements) {
                placements[n] = (nvmlComputeInstancePlacement_t){start, slices_of[profile]};
            }
            n++;
        }
    }
    if (result == NVML_SUCCESS) {
        *count = n;
    }
    return result;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance,
                                                                unsigned int profile,
                                                                unsigned int *count) {
    uint32_t starts;

    NVML_GPU_INSTANCE(call, instance, gi)
    NVML_REQUIRE(count);
    nvmlReturn_t result = starts_of(&call, gi, profile, &starts);
    if (result == NVML_SUCCESS) {
        sg_state_lock(call.in);
        *count = sg_mig_compute_remaining(call.in, call.index, gi, slices_of[profile]);
        sg_state_unlock(call.in);
    }
    return result;
}

static nvmlReturn_t create(struct nvml_call *call, uint32_t gi, unsigned int profile,
                           uint32_t start, nvmlComputeInstance_t *compute) {
    uint32_t starts;
    nvmlReturn_t result = starts_of(call, gi, profile, &starts);

    if (result != NVML_SUCCESS) {
        return result;
    }
    if (!sg_is_owner(call->in)) {
        return NVML_ERROR_NO_PERMISSION;
    }
    sg_state_lock(call->in);
    int ci = sg_mig_compute_create(call->in, call->index, gi, slices_of[profile], start);
    sg_state_unlock(call->in);
    if (ci >= 0) {
        sg_mig_files(call->in, call->index);
        *compute = handle_of(call, gi, (uint32_t)ci);
    }
    return nvml_of_errno(ci);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned int profile,
                                                  nvmlComputeInstance_t *compute) {
    NVML_GPU_INSTANCE(call, instance, gi)
    NVML_REQUIRE(compute);
    return create(&call, gi, profile, SG_MIG_ANYWHERE, compute);
}

nvmlReturn_t
nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t instance, unsigned int profile,
                                                  const nvmlComputeInstancePlacement_t *placement,
                                                  nvmlComputeInstance_t *compute) {
    NVML_GPU_INSTANCE(call, instance, gi)
    NVML_REQUIRE(placement && compute && profile < NVML_COMPUTE_INSTANCE_PROFILE_COUNT &&
                 placement->size == slices_of[profile] && placement->start != SG_MIG_ANYWHERE);
    return create(&call, gi, profile, placement->start, compute);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id,
                                                   nvmlComputeInstance_t *compute) {
    NVML_GPU_INSTANCE(call, instance, gi)
    NVML_REQUIRE(compute);
    if (id >= SG_MIG_COMPUTE_INSTANCES ||
        !sg_mig_compute_instance(call.in, sg_place_of(call.index, gi, id))) {
        return NVML_ERROR_NOT_FOUND;
    }
    *compute = handle_of(&call, gi, id);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned int profile,
                                                nvmlComputeInstance_t *computes,
                                                unsigned int *count) {
    uint32_t starts;
    unsigned int n = 0;

    NVML_GPU_INSTANCE(call, instance, gi)
    NVML_REQUIRE(computes && count);
    nvmlReturn_t result = starts_of(&call, gi, profile, &starts);
    for (uint32_t i = 0; result == NVML_SUCCESS && i < SG_MIG_COMPUTE_INSTANCES; i++) {
        const struct sg_compute_instance *c =
            sg_mig_compute_instance(call.in, sg_place_of(call.index, gi, i));
        if (c && c->size == slices_of[profile]) {
            computes[n++] = handle_of(&call, gi, i);
        }
    }
    *count = n;
    return result;
}

/* Begins a call about a compute instance. */
static nvmlReturn_t enter(struct nvml_call *call, nvmlComputeInstance_t compute, const char *name) {
    uintptr_t first = (uintptr_t)handles, at = (uintptr_t)compute;

    if (at < first || at >= first + sizeof handles) {
        return nvml_in_use() ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_UNINITIALIZED;
    }
    return nvml_enter_any(call, nvml_mig_handle((uint32_t)((at - first) / sizeof *handles) + 1),
                          name);
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t compute) {
    NVML_BEGIN(call, enter(&call, compute, __func__))
    if (!sg_is_owner(call.in)) {
        return NVML_ERROR_NO_PERMISSION;
    }
    sg_state_lock(call.in);
    int result = sg_mig_compute_destroy(call.in, call.index, sg_place_gi(call.place),
                                        sg_place_ci(call.place));
    sg_state_unlock(call.in);
    sg_mig_files(call.in, call.index);
    return nvml_of_errno(result);
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute,
                                           nvmlComputeInstanceInfo_t *info) {
    NVML_BEGIN(call, enter(&call, compute, __func__))
    NVML_REQUIRE(info);
    uint32_t gi = sg_place_gi(call.place), ci = sg_place_ci(call.place);
    struct sg_compute_instance c = call.in->state->gpus[call.index].mig.instances[gi].computes[ci];
    *info = (nvmlComputeInstanceInfo_t){.device = nvml_handle(call.index),
                                        .gpuInstance = nvml_gpu_instance(call.index, gi),
                                        .id = ci,
                                        .profileId = kind_of(c.size),
                                        .placement = {.start = c.start, .size = c.size}};
    return NVML_SUCCESS;
}

/* The first form has no placement. */
nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t compute,
                                        nvmlComputeInstanceInfo_t *info) {
    nvmlComputeInstanceInfo_t whole;

    nvmlReturn_t result = nvmlComputeInstanceGetInfo_v2(compute, &whole);
    if (result != NVML_SUCCESS) {
        return result;
    }
    NVML_REQUIRE(info);
    memcpy(info, &whole, offsetof(nvmlComputeInstanceInfo_t, placement));
    return NVML_SUCCESS;
}
