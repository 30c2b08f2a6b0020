/* Which GPUs there are: the share's, numbered from 0 in the driver's order. NVML ignores
 * CUDA_VISIBLE_DEVICES, and so do these functions.
 *
 * Every lookup asks the driver and then hides what is outside the share, so the driver's own
 * checks of arguments and of its state come first and no answer for a foreign GPU is written to the
 * caller's memory. */
#include "nvml/instance.h"

#include <stddef.h>

/* The driver's count before ours: it tells whether the library is initialised. */
static nvmlReturn_t count_gpus(nvmlReturn_t driver, unsigned int *count) {
    if (driver == NVML_SUCCESS) {
        *count = gpus_count();
    }
    return driver;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) {
    nvmlReturn_t driver = DV_CALL(nvmlDeviceGetCount, count);
    return DV_INNER() ? driver : count_gpus(driver, count);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    nvmlReturn_t driver = DV_CALL(nvmlDeviceGetCount_v2, count);
    return DV_INNER() ? driver : count_gpus(driver, count);
}

static nvmlReturn_t handle_by_index(unsigned int index, nvmlDevice_t *handle) {
    unsigned int count;
    nvmlReturn_t result = DV_CALL(nvmlDeviceGetCount_v2, &count);
    if (result != NVML_SUCCESS) {
        return result;
    }
    return handle ? gpus_handle(index, handle) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *handle) {
    return DV_INNER() ? DV_CALL(nvmlDeviceGetHandleByIndex, index, handle)
                      : handle_by_index(index, handle);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *handle) {
    return DV_INNER() ? DV_CALL(nvmlDeviceGetHandleByIndex_v2, index, handle)
                      : handle_by_index(index, handle);
}

/* Gives the caller a handle that the driver found, if it belongs to the share. */
static nvmlReturn_t hand_on(nvmlReturn_t driver, nvmlDevice_t found, nvmlDevice_t *handle) {
    struct gpu gpu;
    if (driver != NVML_SUCCESS) {
        return driver;
    }
    if (gpu_find(found, &gpu) == GPU_OUTSIDE) {
        return NVML_ERROR_NOT_FOUND;
    }
    *handle = found;
    return NVML_SUCCESS;
}

/* A lookup by a key that names one GPU of the machine. */
#define LOOKUP(fn, key_type)                                                                       \
    nvmlReturn_t fn(key_type key, nvmlDevice_t *handle) {                                          \
        nvmlDevice_t found;                                                                        \
        if (DV_INNER() || handle == NULL) {                                                        \
            return DV_CALL(fn, key, handle);                                                       \
        }                                                                                          \
        nvmlReturn_t driver = DV_CALL(fn, key, &found);                                            \
        return hand_on(driver, found, handle);                                                     \
    }

LOOKUP(nvmlDeviceGetHandleByUUID, const char *)
LOOKUP(nvmlDeviceGetHandleByUUIDV, const nvmlUUID_t *)
LOOKUP(nvmlDeviceGetHandleBySerial, const char *)
LOOKUP(nvmlDeviceGetHandleByPciBusId, const char *)
LOOKUP(nvmlDeviceGetHandleByPciBusId_v2, const char *)
LOOKUP(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, nvmlDevice_t)

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *handle) {
    nvmlDevice_t found;
    if (DV_INNER() || handle == NULL) {
        return DV_CALL(nvmlDeviceGetMigDeviceHandleByIndex, device, index, handle);
    }
    nvmlReturn_t driver = DV_CALL(nvmlDeviceGetMigDeviceHandleByIndex, device, index, &found);
    if (gpus_are_instances() && (driver == NVML_SUCCESS || driver == NVML_ERROR_NOT_FOUND)) {
        return instance_handle(device, index, handle);
    }
    return hand_on(driver, found, handle);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    unsigned int driver_index;
    struct gpu gpu;
    if (DV_INNER() || index == NULL) {
        return DV_CALL(nvmlDeviceGetIndex, device, index);
    }
    nvmlReturn_t result = DV_CALL(nvmlDeviceGetIndex, device, &driver_index);
    if (result != NVML_SUCCESS) {
        return result;
    }
    switch (gpu_find(device, &gpu)) {
    case GPU_SHARED:
        return gpu.instance ? instance_index(device, index) : gpus_position(&gpu, index);
    case GPU_PART:
        *index = driver_index;
        return NVML_SUCCESS;
    default:
        return NVML_ERROR_INVALID_ARGUMENT;
    }
}

/* Excluded GPUs are outside the share. */
nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *count) {
    nvmlReturn_t driver = DV_CALL(nvmlGetExcludedDeviceCount, count);
    if (driver == NVML_SUCCESS && !DV_INNER()) {
        *count = 0;
    }
    return driver;
}

nvmlReturn_t nvmlGetExcludedDeviceInfoByIndex(unsigned int index, nvmlExcludedDeviceInfo_t *info) {
    unsigned int count;
    if (DV_INNER()) {
        return DV_CALL(nvmlGetExcludedDeviceInfoByIndex, index, info);
    }
    nvmlReturn_t driver = DV_CALL(nvmlGetExcludedDeviceCount, &count);
    return driver == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : driver;
}
