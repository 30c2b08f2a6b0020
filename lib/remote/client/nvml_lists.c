/* Lists of NVML that no generated call can carry alone: those for which nothing says how much room the program has, and
 * those whose address stands in a structure. */
#include "remote/client/nvml.h"
#include "remote/generated/nvml_stubs.h"

#include <string.h>

/* More instances, or places of them, than a GPU has. The program has room for as many as the profile's facts say. */
#define MOST 64u

#define UNCOUNTED(fn, handle, type)                                                                \
    nvmlReturn_t fn(handle of, unsigned int profile, type *list, unsigned int *count) {            \
        type all[MOST];                                                                            \
        nvmlReturn_t result = remote_call_##fn(of, profile, list ? all : NULL, count);             \
        if (result == NVML_SUCCESS && count && *count > MOST) {                                    \
            return NVML_ERROR_UNKNOWN;                                                             \
        }                                                                                          \
        if (result == NVML_SUCCESS && list && count) {                                             \
            memcpy(list, all, *count * sizeof *list);                                              \
        }                                                                                          \
        return result;                                                                             \
    }

UNCOUNTED(nvmlDeviceGetGpuInstancePossiblePlacements, nvmlDevice_t, nvmlGpuInstancePlacement_t)
UNCOUNTED(nvmlDeviceGetGpuInstancePossiblePlacements_v2, nvmlDevice_t, nvmlGpuInstancePlacement_t)
UNCOUNTED(nvmlDeviceGetGpuInstances, nvmlDevice_t, nvmlGpuInstance_t)
UNCOUNTED(nvmlGpuInstanceGetComputeInstancePossiblePlacements, nvmlGpuInstance_t,
          nvmlComputeInstancePlacement_t)
UNCOUNTED(nvmlGpuInstanceGetComputeInstances, nvmlGpuInstance_t, nvmlComputeInstance_t)

/* Asks for a list of `*count` elements at most, of which the answer says how many there are. */
static nvmlReturn_t ask_list(enum remote_number number, nvmlDevice_t device, unsigned version,
                             uint64_t own, unsigned *count, void *list, size_t size) {
    struct remote_call call;
    struct remote_reply reply;

    remote_begin(&call, number, 4);
    remote_use(&call, 0, REMOTE_KIND_nvmlDevice_t, (uint64_t)device);
    call.words[1] = version;
    call.words[2] = own;
    remote_count(&call, 0, 3, count, *count, list ? size : 0);
    remote_given(&call, 1, list);
    if (remote_ask(&call, &reply)) {
        remote_get_count(&call, &reply, 0, 3, count, sizeof *count);
        remote_get_some(&call, &reply, 1, list, call.words[3] * size, false);
    }
    return (nvmlReturn_t)remote_end(&call, &reply);
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t *info) {
    if (!info) {
        int32_t closed = remote_gate(REMOTE_nvmlDeviceGetProcessesUtilizationInfo);
        return closed ? (nvmlReturn_t)closed : NVML_ERROR_INVALID_ARGUMENT;
    }
    unsigned room = info->processSamplesCount;
    nvmlReturn_t result =
        ask_list(REMOTE_nvmlDeviceGetProcessesUtilizationInfo, device, info->version,
                 info->lastSeenTimeStamp, &info->processSamplesCount, info->procUtilArray,
                 sizeof *info->procUtilArray);
    for (unsigned i = 0;
         result == NVML_SUCCESS && info->procUtilArray && i < room && i < info->processSamplesCount;
         i++) {
        info->procUtilArray[i].pid = nvml_shown(info->procUtilArray[i].pid);
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_t *details) {
    if (!details) {
        int32_t closed = remote_gate(REMOTE_nvmlDeviceGetRunningProcessDetailList);
        return closed ? (nvmlReturn_t)closed : NVML_ERROR_INVALID_ARGUMENT;
    }
    unsigned room = details->numProcArrayEntries;
    nvmlReturn_t result = ask_list(REMOTE_nvmlDeviceGetRunningProcessDetailList, device,
                                   details->version, details->mode, &details->numProcArrayEntries,
                                   details->procArray, sizeof *details->procArray);
    for (unsigned i = 0; result == NVML_SUCCESS && details->procArray && i < room &&
                         i < details->numProcArrayEntries;
         i++) {
        details->procArray[i].pid = nvml_shown(details->procArray[i].pid);
    }
    return result;
}
