/* A share on MIG instances, as NVML shows a container that was given one: the GPU in MIG mode, with
 * the share's instances and no other. The lists of GPU instances, for which the driver asks for
 * rights that such a container has not, are refused. */
#include "nvml/instance.h"

/* The share's instance at `index` of those on a GPU, or, with a handle in *found, the index of that
 * one. The driver's own numbers may have gaps. NVML_ERROR_NOT_FOUND if there is none. */
static nvmlReturn_t search(nvmlDevice_t device, nvmlDevice_t wanted, unsigned int *index,
                           nvmlDevice_t *found) {
    unsigned int most, own = 0;
    nvmlReturn_t result = DV_CALL(nvmlDeviceGetMaxMigDeviceCount, device, &most);
    for (unsigned int at = 0; result == NVML_SUCCESS && at < most; at++) {
        struct gpu gpu;
        nvmlReturn_t driver = DV_CALL(nvmlDeviceGetMigDeviceHandleByIndex, device, at, found);
        if (driver != NVML_SUCCESS && driver != NVML_ERROR_NOT_FOUND) {
            return driver;
        }
        if (driver == NVML_ERROR_NOT_FOUND || gpu_find(*found, &gpu) != GPU_SHARED) {
            continue;
        }
        if (wanted != NULL ? *found == wanted : own == *index) {
            *index = own;
            return NVML_SUCCESS;
        }
        own++;
    }
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : result;
}

nvmlReturn_t instance_handle(nvmlDevice_t device, unsigned int index, nvmlDevice_t *handle) {
    nvmlDevice_t found;
    nvmlReturn_t result = search(device, NULL, &index, &found);
    if (result == NVML_SUCCESS) {
        *handle = found;
    }
    return result;
}

nvmlReturn_t instance_index(nvmlDevice_t handle, unsigned int *index) {
    nvmlDevice_t device, found;
    unsigned int own;
    nvmlReturn_t result = DV_CALL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle, &device);
    if (result == NVML_SUCCESS) {
        result = search(device, handle, &own, &found);
    }
    if (result == NVML_SUCCESS) {
        *index = own;
    }
    return result;
}

void instance_ids(const struct gpu *gpu, nvmlDevice_t device, unsigned int *gi, unsigned int *ci) {
    nvmlDevice_t handle = device;
    *gi = *ci = NVML_INSTANCE_ID_ANY;
    if (!dv_share_mig(gpu->share) ||
        (!gpu->instance && instance_handle(device, 0, &handle) != NVML_SUCCESS) ||
        DV_CALL(nvmlDeviceGetGpuInstanceId, handle, gi) != NVML_SUCCESS ||
        DV_CALL(nvmlDeviceGetComputeInstanceId, handle, ci) != NVML_SUCCESS) {
        *gi = *ci = NVML_INSTANCE_ID_ANY;
    }
}

/* The driver's answer if it is an error; else that of a driver whose caller may not ask. */
static nvmlReturn_t without_permission(nvmlReturn_t driver) {
    return driver == NVML_SUCCESS || driver == NVML_ERROR_INSUFFICIENT_SIZE
               ? NVML_ERROR_NO_PERMISSION
               : driver;
}

#define GPU_INSTANCES_MAX 64u /* of one profile; the driver's limit is far below */

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile,
                                       nvmlGpuInstance_t *instances, unsigned int *count) {
    nvmlGpuInstance_t list[GPU_INSTANCES_MAX];
    unsigned int number = GPU_INSTANCES_MAX;
    if (DV_INNER() || !gpus_are_instances()) {
        return DV_CALL(nvmlDeviceGetGpuInstances, device, profile, instances, count);
    }
    return without_permission(DV_CALL(nvmlDeviceGetGpuInstances, device, profile, list, &number));
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
                                          nvmlGpuInstance_t *instance) {
    nvmlGpuInstance_t found;
    if (DV_INNER() || !gpus_are_instances()) {
        return DV_CALL(nvmlDeviceGetGpuInstanceById, device, id, instance);
    }
    nvmlReturn_t driver = DV_CALL(nvmlDeviceGetGpuInstanceById, device, id, &found);
    return driver == NVML_ERROR_NOT_FOUND ? NVML_ERROR_NO_PERMISSION : without_permission(driver);
}

/* How many more fit tells of others' instances. */
nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int profile,
                                                       unsigned int *count) {
    unsigned int found;
    if (DV_INNER() || !gpus_are_instances()) {
        return DV_CALL(nvmlDeviceGetGpuInstanceRemainingCapacity, device, profile, count);
    }
    return without_permission(
        DV_CALL(nvmlDeviceGetGpuInstanceRemainingCapacity, device, profile, &found));
}

/* Performance counters of one GPU instance. */
nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int id, nvmlGpmSample_t sample) {
    struct gpu gpu;
    unsigned int gi, ci;
    if (!DV_INNER() && gpus_are_instances()) {
        if (gpu_find(device, &gpu) == GPU_OUTSIDE) {
            return DV_CALL(nvmlGpmMigSampleGet, NULL, id, sample);
        }
        instance_ids(&gpu, device, &gi, &ci);
        if (gi != id) {
            return NVML_ERROR_INVALID_ARGUMENT;
        }
    }
    return DV_CALL(nvmlGpmMigSampleGet, device, id, sample);
}
