/* The test driver's lists: processes, samples, sessions and topology. */
#include "nvml/test/driver.h"

#include <string.h>
#include <time.h>

static unsigned long long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000u + (unsigned long long)now.tv_nsec / 1000u;
}

/* Copies the processes of a GPU, each by `copy`, as NVML's lists do. */
static nvmlReturn_t list(nvmlDevice_t device, unsigned int *count, void *out, size_t stride,
                         void (*copy)(void *, const struct fake_process *)) {
    const struct fake_driver *driver = fake_driver();
    unsigned int index;
    nvmlReturn_t result = nvmlDeviceGetIndex(device, &index);
    if (result != NVML_SUCCESS) {
        return result;
    }
    unsigned int number = 0;
    for (unsigned int at = 0; at < driver->process_count; at++) {
        if (driver->processes[at].gpu == index) {
            if (number < *count) {
                copy((char *)out + number * stride, &driver->processes[at]);
            }
            number++;
        }
    }
    bool fits = number <= *count;
    *count = number;
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

static void copy_v1(void *out, const struct fake_process *process) {
    *(nvmlProcessInfo_v1_t *)out =
        (nvmlProcessInfo_v1_t){.pid = process->pid, .usedGpuMemory = process->memory};
}

static void copy_v3(void *out, const struct fake_process *process) {
    *(nvmlProcessInfo_t *)out = (nvmlProcessInfo_t){.pid = process->pid,
                                                    .usedGpuMemory = process->memory,
                                                    .gpuInstanceId = NVML_INSTANCE_ID_ANY,
                                                    .computeInstanceId = NVML_INSTANCE_ID_ANY};
}

static void copy_detail(void *out, const struct fake_process *process) {
    *(nvmlProcessDetail_v1_t *)out =
        (nvmlProcessDetail_v1_t){.pid = process->pid, .usedGpuMemory = process->memory};
}

static void copy_pid(void *out, const struct fake_process *process) {
    *(unsigned int *)out = process->pid;
}

static void copy_session(void *out, const struct fake_process *process) {
    *(nvmlEncoderSessionInfo_t *)out =
        (nvmlEncoderSessionInfo_t){.sessionId = 7, .pid = process->pid};
}

static void copy_sample(void *out, const struct fake_process *process) {
    *(nvmlProcessUtilizationSample_t *)out =
        (nvmlProcessUtilizationSample_t){.pid = process->pid,
                                         .timeStamp = now_us(),
                                         .smUtil = process->sm,
                                         .memUtil = process->sm / 2,
                                         .encUtil = process->encoder};
}

static void copy_info(void *out, const struct fake_process *process) {
    *(nvmlProcessUtilizationInfo_v1_t *)out = (nvmlProcessUtilizationInfo_v1_t){
        .pid = process->pid, .timeStamp = now_us(), .smUtil = process->sm};
}

#define LIST(fn, type, copy)                                                                       \
    nvmlReturn_t fn(nvmlDevice_t device, unsigned int *count, type *out) {                         \
        return list(device, count, out, sizeof(type), copy);                                       \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, copy_v1)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, copy_v3)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, copy_v3)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, copy_v3)
LIST(nvmlDeviceGetEncoderSessions, nvmlEncoderSessionInfo_t, copy_session)
LIST(nvmlDeviceGetAccountingPids, unsigned int, copy_pid)

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_t *details) {
    return list(device, &details->numProcArrayEntries, details->procArray,
                sizeof(nvmlProcessDetail_v1_t), copy_detail);
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
                                          nvmlAccountingStats_t *stats) {
    unsigned int index;
    (void)pid;
    *stats = (nvmlAccountingStats_t){.maxMemoryUsage = 4711};
    return nvmlDeviceGetIndex(device, &index);
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long since) {
    if (fake_driver()->no_samples) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    if (since >= now_us()) {
        return NVML_ERROR_NOT_FOUND;
    }
    return list(device, count, samples, sizeof *samples, copy_sample);
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t *infos) {
    return list(device, &infos->processSamplesCount, infos->procUtilArray,
                sizeof(nvmlProcessUtilizationInfo_v1_t), copy_info);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    unsigned int index;
    *rates = (nvmlUtilization_t){.gpu = 99, .memory = 98};
    return nvmlDeviceGetIndex(device, &index);
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *percent,
                                             unsigned int *period_us) {
    unsigned int index;
    *percent = 97;
    *period_us = 167000;
    return nvmlDeviceGetIndex(device, &index);
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
                                  unsigned long long since, nvmlValueType_t *value_type,
                                  unsigned int *count, nvmlSample_t *samples) {
    unsigned int index;
    (void)type;
    (void)since;
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    for (unsigned int at = 0; samples != NULL && at < *count; at++) {
        samples[at] = (nvmlSample_t){.timeStamp = at, .sampleValue.uiVal = 96};
    }
    return nvmlDeviceGetIndex(device, &index);
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                              unsigned int *count, nvmlDevice_t *others) {
    unsigned int index, number = 0;
    nvmlReturn_t result = nvmlDeviceGetIndex(device, &index);
    (void)level;
    for (unsigned int other = 0; other < FAKE_GPUS && number < *count; other++) {
        if (other != index) {
            others[number++] = fake_handle(other);
        }
    }
    *count = number;
    return result;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other,
                                                 nvmlGpuTopologyLevel_t *level) {
    unsigned int index;
    *level = (nvmlGpuTopologyLevel_t)20;
    nvmlReturn_t result = nvmlDeviceGetIndex(one, &index);
    return result == NVML_SUCCESS ? nvmlDeviceGetIndex(other, &index) : result;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other,
                                    nvmlGpuP2PCapsIndex_t capability, nvmlGpuP2PStatus_t *status) {
    (void)capability;
    *status = (nvmlGpuP2PStatus_t)3;
    nvmlGpuTopologyLevel_t level;
    return nvmlDeviceGetTopologyCommonAncestor(one, other, &level);
}
