/* How busy the GPU is with the tenant's work: the sum over its own processes of the driver's
 * samples. A driver or a GPU that gives no samples per process (a MIG instance, for one) leaves the
 * figure of the whole GPU. JPEG and optical-flow engines, the performance monitors (GPM) and
 * counters of the bus are the whole GPU's always. */
#include "nvml/processes.h"

#include <stdlib.h>
#include <time.h>

/* Older samples do not describe the present load. The driver samples each process about once a
 * second.
 */
#define RECENT_US 2000000ull

struct load {
    bool known;                                /* false: the driver cannot tell processes apart */
    unsigned int sm, memory, encoder, decoder; /* percent */
};

static nvmlReturn_t query_samples(nvmlDevice_t device, unsigned int *count, void *entries,
                                  const void *since) {
    nvmlReturn_t result = DV_CALL(nvmlDeviceGetProcessUtilization, device, entries, count,
                                  *(const unsigned long long *)since);
    if (result == NVML_ERROR_NOT_FOUND) { /* nobody has used the GPU since then */
        *count = 0;
        return NVML_SUCCESS;
    }
    return result;
}

/* The tenant's samples taken after `since`, in heap memory that the caller frees. */
static nvmlReturn_t read_samples(nvmlDevice_t device, unsigned long long since, void **samples,
                                 unsigned int *count) {
    const struct list list = {
        .query = query_samples,
        .argument = &since,
        .stride = sizeof(nvmlProcessUtilizationSample_t),
        .pid = offsetof(nvmlProcessUtilizationSample_t, pid),
    };
    return list_read(&list, device, samples, count);
}

static unsigned long long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000u + (unsigned long long)now.tv_nsec / 1000u;
}

/* True if a later entry of the list is a newer sample of the same process. */
static bool is_outdated(const nvmlProcessUtilizationSample_t *samples, unsigned int count,
                        unsigned int at) {
    for (unsigned int other = 0; other < count; other++) {
        bool newer = samples[other].timeStamp > samples[at].timeStamp ||
                     (samples[other].timeStamp == samples[at].timeStamp && other > at);
        if (samples[other].pid == samples[at].pid && newer) {
            return true;
        }
    }
    return false;
}

static unsigned int add_percent(unsigned int sum, unsigned int more) {
    return more > 100 - sum ? 100 : sum + more;
}

/* The tenant's present load. An error only for a GPU outside the share. */
static nvmlReturn_t read_load(nvmlDevice_t device, struct load *load) {
    struct gpu gpu;
    void *list;
    unsigned int count;
    *load = (struct load){.known = false};
    if (gpu_find(device, &gpu) == GPU_OUTSIDE) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (read_samples(device, now_us() - RECENT_US, &list, &count) != NVML_SUCCESS) {
        return NVML_SUCCESS;
    }
    load->known = true;
    const nvmlProcessUtilizationSample_t *samples = list;
    for (unsigned int at = 0; at < count; at++) {
        if (!is_outdated(samples, count, at)) {
            load->sm = add_percent(load->sm, samples[at].smUtil);
            load->memory = add_percent(load->memory, samples[at].memUtil);
            load->encoder = add_percent(load->encoder, samples[at].encUtil);
            load->decoder = add_percent(load->decoder, samples[at].decUtil);
        }
    }
    free(list);
    return NVML_SUCCESS;
}

/* Reads the tenant's load after the driver has answered for the whole GPU with `driver`, unless the
 * driver itself has asked. */
static nvmlReturn_t after_driver(nvmlReturn_t driver, bool inner, nvmlDevice_t device,
                                 struct load *load) {
    load->known = false;
    return driver == NVML_SUCCESS && !inner ? read_load(device, load) : driver;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    struct load load;
    nvmlReturn_t driver = DV_CALL(nvmlDeviceGetUtilizationRates, device, rates);
    nvmlReturn_t result = after_driver(driver, DV_INNER(), device, &load);
    if (load.known) {
        *rates = (nvmlUtilization_t){.gpu = load.sm, .memory = load.memory};
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *percent,
                                             unsigned int *period_us) {
    struct load load;
    nvmlReturn_t driver = DV_CALL(nvmlDeviceGetEncoderUtilization, device, percent, period_us);
    nvmlReturn_t result = after_driver(driver, DV_INNER(), device, &load);
    if (load.known) {
        *percent = load.encoder;
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *percent,
                                             unsigned int *period_us) {
    struct load load;
    nvmlReturn_t driver = DV_CALL(nvmlDeviceGetDecoderUtilization, device, percent, period_us);
    nvmlReturn_t result = after_driver(driver, DV_INNER(), device, &load);
    if (load.known) {
        *percent = load.decoder;
    }
    return result;
}

/* The first two of the driver's domains are the GPU and its frame buffer. */
nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device,
                                             nvmlGpuDynamicPstatesInfo_t *info) {
    struct load load;
    nvmlReturn_t driver = DV_CALL(nvmlDeviceGetDynamicPstatesInfo, device, info);
    nvmlReturn_t result = after_driver(driver, DV_INNER(), device, &load);
    if (load.known) {
        info->utilization[0].percentage = load.sm;
        info->utilization[1].percentage = load.memory;
    }
    return result;
}

/* The part of the load that a kind of sample is about, NULL for other kinds (power, clocks). */
static const unsigned int *part_of(const struct load *load, nvmlSamplingType_t type) {
    switch (type) {
    case NVML_GPU_UTILIZATION_SAMPLES:
        return &load->sm;
    case NVML_MEMORY_UTILIZATION_SAMPLES:
        return &load->memory;
    case NVML_ENC_UTILIZATION_SAMPLES:
        return &load->encoder;
    case NVML_DEC_UTILIZATION_SAMPLES:
        return &load->decoder;
    default:
        return NULL;
    }
}

/* A sample of the whole GPU's load cannot be divided later, so each keeps its time stamp and gets
 * the tenant's present load. */
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
                                  unsigned long long since, nvmlValueType_t *value_type,
                                  unsigned int *count, nvmlSample_t *samples) {
    struct load load;
    const unsigned int *part = part_of(&load, type);
    nvmlReturn_t driver =
        DV_CALL(nvmlDeviceGetSamples, device, type, since, value_type, count, samples);
    if (part == NULL || samples == NULL) {
        return driver;
    }
    nvmlReturn_t result = after_driver(driver, DV_INNER(), device, &load);
    for (unsigned int at = 0; load.known && at < *count; at++) {
        samples[at].sampleValue.uiVal = *part;
    }
    return result;
}

/* Version 1 of the per-process samples. No buffer asks for the number of entries to make room
   for. */
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long since) {
    void *own;
    unsigned int number;
    if (DV_INNER() || count == NULL) {
        return DV_CALL(nvmlDeviceGetProcessUtilization, device, samples, count, since);
    }
    nvmlReturn_t result = read_samples(device, since, &own, &number);
    if (result == NVML_SUCCESS && samples == NULL) {
        *count = number > 0 ? number : 1;
        result = NVML_ERROR_INSUFFICIENT_SIZE;
    } else if (result == NVML_SUCCESS) {
        result = number > 0 ? list_give(own, number, sizeof *samples, count, samples)
                            : NVML_ERROR_NOT_FOUND;
    }
    free(own);
    return result;
}

static nvmlReturn_t query_infos(nvmlDevice_t device, unsigned int *count, void *entries,
                                const void *argument) {
    nvmlProcessesUtilizationInfo_t request = *(const nvmlProcessesUtilizationInfo_t *)argument;
    request.processSamplesCount = *count;
    request.procUtilArray = entries;
    nvmlReturn_t result = DV_CALL(nvmlDeviceGetProcessesUtilizationInfo, device, &request);
    *count = request.processSamplesCount;
    return result;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t *request) {
    if (DV_INNER() || request == NULL) {
        return DV_CALL(nvmlDeviceGetProcessesUtilizationInfo, device, request);
    }
    if (request->version != NVML_STRUCT_VERSION(nvmlProcessesUtilizationInfo_t, 1)) {
        return gpus_unknown_version();
    }
    const struct list list = {
        .query = query_infos,
        .argument = request,
        .stride = sizeof(nvmlProcessUtilizationInfo_v1_t),
        .pid = offsetof(nvmlProcessUtilizationInfo_v1_t, pid),
    };
    void *own;
    unsigned int number;
    nvmlReturn_t result = list_read(&list, device, &own, &number);
    if (result == NVML_SUCCESS) {
        result = number > 0 ? list_give(own, number, list.stride, &request->processSamplesCount,
                                        request->procUtilArray)
                            : NVML_ERROR_NOT_FOUND;
    }
    free(own);
    return result;
}
