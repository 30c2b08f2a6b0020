/* Who uses the GPU: the tenant's own processes.
 *
 * Compute processes come from the state page, with what they are charged: the driver's own list may
 * know them under other pids, or not at all inside a container. Graphics processes, MPS clients and
 * sessions come from the driver and are reduced to the tenant's. */
#include "nvml/instance.h"
#include "nvml/processes.h"

#include <stdlib.h>

/* Writes the tenant's compute processes in an instance to `infos`, which has room for all of them. */
static unsigned int describe_compute(const struct tenant *tenant, unsigned int gi, unsigned int ci,
                                     nvmlProcessInfo_t *infos) {
    unsigned int number = 0;
    for (unsigned int at = 0; at < tenant->count; at++) {
        if (tenant->processes[at].used > 0) {
            infos[number++] = (nvmlProcessInfo_t){
                .pid = tenant->processes[at].pid,
                .usedGpuMemory = tenant->processes[at].used,
                .gpuInstanceId = gi,
                .computeInstanceId = ci,
            };
        }
    }
    return number;
}

/* The tenant's compute processes on the GPU `device`, in heap memory that the caller frees. */
static nvmlReturn_t read_compute(nvmlDevice_t device, nvmlProcessInfo_t **infos,
                                 unsigned int *number) {
    struct gpu gpu;
    struct tenant tenant;
    *infos = NULL;
    if (gpu_find(device, &gpu) == GPU_OUTSIDE) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    nvmlReturn_t result = tenant_read(&gpu, &tenant);
    if (result == NVML_SUCCESS) {
        *infos = calloc(tenant.count + 1u, sizeof **infos);
        result = *infos ? NVML_SUCCESS : NVML_ERROR_MEMORY;
    }
    if (result == NVML_SUCCESS) {
        unsigned int gi, ci;
        instance_ids(&gpu, device, &gi, &ci);
        *number = describe_compute(&tenant, gi, ci, *infos);
    }
    tenant_free(&tenant);
    return result;
}

/* Whether the driver refuses a list for a reason other than its length. */
static bool refused(nvmlReturn_t driver) {
    return driver != NVML_SUCCESS && driver != NVML_ERROR_INSUFFICIENT_SIZE;
}

/* Versions 2 and 3, whose entries are laid out alike (24 bytes). */
static nvmlReturn_t give_compute(nvmlReturn_t driver, nvmlDevice_t device, unsigned int *count,
                                 void *out) {
    nvmlProcessInfo_t *infos;
    unsigned int number;
    if (refused(driver)) {
        return driver;
    }
    nvmlReturn_t result = read_compute(device, &infos, &number);
    if (result == NVML_SUCCESS) {
        result = list_give(infos, number, sizeof *infos, count, out);
    }
    free(infos);
    return result;
}

/* Version 1, whose entries are 16 bytes: process and memory alone. */
static nvmlReturn_t give_compute_v1(nvmlReturn_t driver, nvmlDevice_t device, unsigned int *count,
                                    nvmlProcessInfo_v1_t *out) {
    nvmlProcessInfo_t *infos;
    unsigned int number;
    if (refused(driver)) {
        return driver;
    }
    nvmlReturn_t result = read_compute(device, &infos, &number);
    if (result == NVML_SUCCESS) {
        nvmlProcessInfo_v1_t *narrow = (void *)infos;
        for (unsigned int at = 0; at < number; at++) {
            nvmlProcessInfo_t info = infos[at];
            narrow[at] =
                (nvmlProcessInfo_v1_t){.pid = info.pid, .usedGpuMemory = info.usedGpuMemory};
        }
        result = list_give(narrow, number, sizeof *narrow, count, out);
    }
    free(infos);
    return result;
}

/* Asks the driver for the number alone, to learn whether it would answer. */
#define COMPUTE(fn, type, give)                                                                    \
    nvmlReturn_t fn(nvmlDevice_t device, unsigned int *count, type *infos) {                       \
        unsigned int none = 0;                                                                     \
        if (DV_INNER() || count == NULL) {                                                         \
            return DV_CALL(fn, device, count, infos);                                              \
        }                                                                                          \
        nvmlReturn_t driver = DV_CALL(fn, device, &none, NULL);                                    \
        return give(driver, device, count, infos);                                                 \
    }

COMPUTE(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, give_compute_v1)
COMPUTE(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, give_compute)
COMPUTE(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, give_compute)

static nvmlReturn_t give_own(const struct list *list, nvmlDevice_t device, unsigned int *count,
                             void *out) {
    void *entries;
    unsigned int number;
    nvmlReturn_t result = list_read(list, device, &entries, &number);
    if (result == NVML_SUCCESS) {
        result = list_give(entries, number, list->stride, count, out);
    }
    free(entries);
    return result;
}

/* A list of the driver's, reduced to the tenant's entries. */
#define OWN(fn, type, pid_offset, memory_offset)                                                   \
    static nvmlReturn_t query_##fn(nvmlDevice_t device, unsigned int *count, void *entries,        \
                                   const void *argument) {                                         \
        (void)argument;                                                                            \
        return DV_CALL(fn, device, count, entries);                                                \
    }                                                                                              \
    nvmlReturn_t fn(nvmlDevice_t device, unsigned int *count, type *entries) {                     \
        static const struct list list = {.query = query_##fn,                                      \
                                         .stride = sizeof(type),                                   \
                                         .pid = pid_offset,                                        \
                                         .memory = memory_offset};                                 \
        if (DV_INNER() || count == NULL) {                                                         \
            return DV_CALL(fn, device, count, entries);                                            \
        }                                                                                          \
        return give_own(&list, device, count, entries);                                            \
    }

#define OWN_PROCESSES(fn, type, memory_offset) OWN(fn, type, offsetof(type, pid), memory_offset)

/* A graphics process's memory is not charged, so the driver's figure stands. */
OWN_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, 0)
OWN_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, 0)
OWN_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, 0)
OWN_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t,
              offsetof(nvmlProcessInfo_v1_t, usedGpuMemory))
OWN_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t,
              offsetof(nvmlProcessInfo_v2_t, usedGpuMemory))
OWN_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t,
              offsetof(nvmlProcessInfo_t, usedGpuMemory))
OWN_PROCESSES(nvmlDeviceGetEncoderSessions, nvmlEncoderSessionInfo_t, 0)
OWN_PROCESSES(nvmlDeviceGetFBCSessions, nvmlFBCSessionInfo_t, 0)
OWN(nvmlDeviceGetAccountingPids, unsigned int, 0, 0)
