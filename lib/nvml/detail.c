/* Processes in the newer form that carries its own version, and what the driver accounted for
   one. */
#include "nvml/instance.h"
#include "nvml/processes.h"

#include <stdlib.h>

struct detail_request {
    unsigned int version;
    unsigned int mode;
};

static nvmlReturn_t query_details(nvmlDevice_t device, unsigned int *count, void *entries,
                                  const void *argument) {
    const struct detail_request *request = argument;
    nvmlProcessDetailList_t list = {
        .version = request->version,
        .mode = request->mode,
        .numProcArrayEntries = *count,
        .procArray = entries,
    };
    nvmlReturn_t result = DV_CALL(nvmlDeviceGetRunningProcessDetailList, device, &list);
    *count = list.numProcArrayEntries;
    return result;
}

/* Replaces the driver's compute processes by those that the state page knows, see process.c. */
static nvmlReturn_t describe_compute(nvmlDevice_t device, void **entries, unsigned int *number) {
    struct gpu gpu;
    struct tenant tenant = {.processes = NULL};
    nvmlProcessDetail_v1_t *details = NULL;
    unsigned int gi = NVML_INSTANCE_ID_ANY, ci = NVML_INSTANCE_ID_ANY;
    *number = 0;
    nvmlReturn_t result = gpu_find(device, &gpu) == GPU_OUTSIDE ? NVML_ERROR_INVALID_ARGUMENT
                                                                : tenant_read(&gpu, &tenant);
    if (result == NVML_SUCCESS) {
        details = calloc(tenant.count + 1u, sizeof *details);
        result = details ? NVML_SUCCESS : NVML_ERROR_MEMORY;
        instance_ids(&gpu, device, &gi, &ci);
    }
    for (unsigned int at = 0; result == NVML_SUCCESS && at < tenant.count; at++) {
        if (tenant.processes[at].used > 0) {
            details[(*number)++] = (nvmlProcessDetail_v1_t){
                .pid = tenant.processes[at].pid,
                .usedGpuMemory = tenant.processes[at].used,
                .gpuInstanceId = gi,
                .computeInstanceId = ci,
            };
        }
    }
    tenant_free(&tenant);
    free(*entries);
    *entries = details;
    return result;
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_t *list) {
    if (DV_INNER() || list == NULL) {
        return DV_CALL(nvmlDeviceGetRunningProcessDetailList, device, list);
    }
    struct detail_request request = {.version = list->version, .mode = list->mode};
    struct list layout = {
        .query = query_details,
        .argument = &request,
        .stride = sizeof(nvmlProcessDetail_v1_t),
        .pid = offsetof(nvmlProcessDetail_v1_t, pid),
        .memory = list->mode == NVML_PROCESS_MODE_GRAPHICS
                      ? 0
                      : offsetof(nvmlProcessDetail_v1_t, usedGpuMemory),
    };
    if (list->version != NVML_STRUCT_VERSION(nvmlProcessDetailList_t, 1)) {
        return gpus_unknown_version();
    }
    void *entries;
    unsigned int number;
    nvmlReturn_t result = list_read(&layout, device, &entries, &number);
    if (result == NVML_SUCCESS && list->mode == NVML_PROCESS_MODE_COMPUTE) {
        result = describe_compute(device, &entries, &number);
    }
    if (result == NVML_SUCCESS) {
        result =
            list_give(entries, number, layout.stride, &list->numProcArrayEntries, list->procArray);
    }
    free(entries);
    return result;
}

/* NVML_SUCCESS if the tenant has a living process `pid` on this GPU. The driver's figures of dead
 * processes are not shown: nobody can tell whose they were. */
static nvmlReturn_t check_owner(nvmlDevice_t device, unsigned int pid) {
    struct gpu gpu;
    struct tenant tenant;
    if (gpu_find(device, &gpu) == GPU_OUTSIDE) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    nvmlReturn_t result = tenant_read(&gpu, &tenant);
    if (result == NVML_SUCCESS && tenant_find(&tenant, pid) == NULL) {
        result = NVML_ERROR_NOT_FOUND;
    }
    tenant_free(&tenant);
    return result;
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
                                          nvmlAccountingStats_t *stats) {
    nvmlAccountingStats_t found;
    if (DV_INNER() || stats == NULL) {
        return DV_CALL(nvmlDeviceGetAccountingStats, device, pid, stats);
    }
    nvmlReturn_t result = DV_CALL(nvmlDeviceGetAccountingStats, device, pid, &found);
    if (result == NVML_SUCCESS) {
        result = check_owner(device, pid);
    }
    if (result == NVML_SUCCESS) {
        *stats = found;
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t *stats) {
    if (DV_INNER() || stats == NULL) {
        return DV_CALL(nvmlDeviceGetAccountingStats_v2, device, stats);
    }
    nvmlReturn_t result = check_owner(device, stats->pid);
    return result == NVML_SUCCESS ? DV_CALL(nvmlDeviceGetAccountingStats_v2, device, stats)
                                  : result;
}
