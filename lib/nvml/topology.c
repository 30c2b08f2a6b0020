/* How GPUs are connected. Only GPUs of the share are compared or listed. */
#include "nvml/gpus.h"

#include <stdlib.h>

static bool in_share(nvmlDevice_t device) {
    struct gpu gpu;
    return gpu_find(device, &gpu) != GPU_OUTSIDE;
}

/* A question about a pair of GPUs. The driver answers into a buffer of ours, and the caller gets
 * the answer if both GPUs belong to the share. */
#define PAIR(fn, answer_type)                                                                      \
    nvmlReturn_t fn(nvmlDevice_t one, nvmlDevice_t other, answer_type *answer) {                   \
        answer_type found;                                                                         \
        if (DV_INNER() || answer == NULL) {                                                        \
            return DV_CALL(fn, one, other, answer);                                                \
        }                                                                                          \
        nvmlReturn_t result = DV_CALL(fn, one, other, &found);                                     \
        if (result == NVML_SUCCESS && !(in_share(one) && in_share(other))) {                       \
            return NVML_ERROR_INVALID_ARGUMENT;                                                    \
        }                                                                                          \
        if (result == NVML_SUCCESS) {                                                              \
            *answer = found;                                                                       \
        }                                                                                          \
        return result;                                                                             \
    }

PAIR(nvmlDeviceGetTopologyCommonAncestor, nvmlGpuTopologyLevel_t)
PAIR(nvmlDeviceOnSameBoard, int)

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other,
                                    nvmlGpuP2PCapsIndex_t capability, nvmlGpuP2PStatus_t *status) {
    nvmlGpuP2PStatus_t found;
    if (DV_INNER() || status == NULL) {
        return DV_CALL(nvmlDeviceGetP2PStatus, one, other, capability, status);
    }
    nvmlReturn_t result = DV_CALL(nvmlDeviceGetP2PStatus, one, other, capability, &found);
    if (result == NVML_SUCCESS && !(in_share(one) && in_share(other))) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result == NVML_SUCCESS) {
        *status = found;
    }
    return result;
}

/* Room for the GPUs of one machine; the largest known hosts have 16. */
#define MACHINE_GPUS 64u

/* Drops the GPUs outside the share from a list. Returns what is left. */
static unsigned int keep_shared(nvmlDevice_t *list, unsigned int count) {
    unsigned int kept = 0;
    for (unsigned int at = 0; at < count; at++) {
        if (in_share(list[at])) {
            list[kept++] = list[at];
        }
    }
    return kept;
}

/* Answers as the two topology lists do: a count of 0 asks for the number of GPUs, any other is the
 * size of `devices`, which is filled up to that. */
static nvmlReturn_t give_devices(const nvmlDevice_t *list, unsigned int number, unsigned int *count,
                                 nvmlDevice_t *devices) {
    if (*count == 0) {
        *count = number;
        return NVML_SUCCESS;
    }
    if (devices == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *count = number < *count ? number : *count;
    for (unsigned int at = 0; at < *count; at++) {
        devices[at] = list[at];
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                              unsigned int *count, nvmlDevice_t *devices) {
    if (DV_INNER() || count == NULL) {
        return DV_CALL(nvmlDeviceGetTopologyNearestGpus, device, level, count, devices);
    }
    nvmlDevice_t list[MACHINE_GPUS];
    unsigned int number = MACHINE_GPUS;
    nvmlReturn_t result = DV_CALL(nvmlDeviceGetTopologyNearestGpus, device, level, &number, list);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (!in_share(device)) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    return give_devices(list, keep_shared(list, number), count, devices);
}

nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpu, unsigned int *count,
                                         nvmlDevice_t *devices) {
    if (DV_INNER() || count == NULL) {
        return DV_CALL(nvmlSystemGetTopologyGpuSet, cpu, count, devices);
    }
    nvmlDevice_t list[MACHINE_GPUS];
    unsigned int number = MACHINE_GPUS;
    nvmlReturn_t result = DV_CALL(nvmlSystemGetTopologyGpuSet, cpu, &number, list);
    if (result != NVML_SUCCESS) {
        return result;
    }
    return give_devices(list, keep_shared(list, number), count, devices);
}

/* An S-class unit's GPUs; unlike the topology lists, too little room is an error here. */
nvmlReturn_t nvmlUnitGetDevices(nvmlUnit_t unit, unsigned int *count, nvmlDevice_t *devices) {
    if (DV_INNER() || count == NULL) {
        return DV_CALL(nvmlUnitGetDevices, unit, count, devices);
    }
    nvmlDevice_t list[MACHINE_GPUS];
    unsigned int number = MACHINE_GPUS;
    nvmlReturn_t result = DV_CALL(nvmlUnitGetDevices, unit, &number, list);
    if (result != NVML_SUCCESS) {
        return result;
    }
    number = keep_shared(list, number);
    if (number > *count) {
        *count = number;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    *count = number;
    return number == 0 ? NVML_SUCCESS : give_devices(list, number, count, devices);
}
