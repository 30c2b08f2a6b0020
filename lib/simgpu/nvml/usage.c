/* NVML: how busy a device is, as a share of the time in which anything executed on it.
 *
 * The driver takes a sample every sixth of a second. A utilisation is the mean of the last window,
 * which is the machine's sample window rounded up to whole samples, and it is reported late by the
 * machine's lag. Kernels are assumed to use memory half of their time.
 */
#include "simgpu/nvml/usage.h"

void usage_catch_up(struct nvml_call *call) {
    sg_advance(call->in, call->index, sg_time(call->in));
}

/* The newest boundary that is reported. */
static uint64_t told(const struct nvml_call *call) {
    uint64_t now = sg_time(call->in);
    uint64_t lag = call->machine->sample_lag_ns;

    if (lag > USAGE_REACH * SG_SAMPLE_NS) {
        lag = USAGE_REACH * SG_SAMPLE_NS;
    }
    return now > lag ? (now - lag) / SG_SAMPLE_NS : 0;
}

/* Samples in a window. */
static uint64_t window(const struct nvml_call *call) {
    uint64_t n = (call->machine->sample_window_ns + SG_SAMPLE_NS - 1) / SG_SAMPLE_NS;

    if (n == 0) {
        return 1;
    }
    return n < USAGE_REACH ? n : USAGE_REACH;
}

unsigned int usage_percent(usage_record executed, uint64_t boundary, uint64_t n) {
    if (n == 0 || boundary < n) {
        return 0;
    }
    uint64_t end = __atomic_load_n(&executed[boundary % SG_SAMPLES], __ATOMIC_RELAXED);
    uint64_t begin = __atomic_load_n(&executed[(boundary - n) % SG_SAMPLES], __ATOMIC_RELAXED);
    uint64_t part = end > begin ? (end - begin) * 100 / (n * SG_SAMPLE_NS) : 0;
    return part < 100 ? (unsigned int)part : 100;
}

unsigned int nvml_gpu_percent(struct nvml_call *call) {
    usage_catch_up(call);
    return usage_percent(call->in->state->gpus[call->index].samples, told(call), window(call));
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(rates);
    NVML_NOT_DIVIDED(call)
    rates->gpu = nvml_gpu_percent(&call);
    rates->memory = rates->gpu / 2;
    return NVML_SUCCESS;
}

unsigned int usage_new_samples(struct nvml_call *call, unsigned long long since, uint64_t *first) {
    uint64_t last = told(call);
    uint64_t oldest = last > USAGE_REACH ? last - USAGE_REACH : 1;

    while (oldest <= last && nvml_stamp(oldest * SG_SAMPLE_NS) <= since) {
        oldest++;
    }
    *first = oldest;
    return (unsigned int)(last + 1 - oldest);
}

/* Spare entries that a caller is told to make room for. */
#define SPARE 16u

/* One process's newest window. */
struct usage {
    unsigned int pid;
    unsigned int percent;
    struct sg_who who;
};

/* Drops the processes that the caller does not see. */
static unsigned int name_busy(struct usage list[], unsigned int n) {
    struct sg_pids pids = {.count = 0};
    unsigned int seen = 0;

    for (unsigned int i = 0; i < n; i++) {
        list[i].pid = (unsigned int)sg_pids_of(&pids, &list[i].who);
        if (list[i].pid) {
            list[seen++] = list[i];
        }
    }
    sg_pids_end(&pids);
    return seen;
}

/* Whether a client was busy in any reported sample from `first` on, or in the newest window. */
static bool was_busy(struct nvml_call *call, uint32_t client, uint64_t first, uint64_t last) {
    const struct sg_channel *channel = sg_channel(call->in, client, call->index);

    return usage_percent(channel->samples, last, last + 1 - first) != 0 ||
           usage_percent(channel->samples, last, window(call)) != 0;
}

/* The same of anybody, dead or alive. */
static bool anybody_was_busy(struct nvml_call *call, uint64_t first, uint64_t last) {
    for (uint32_t i = 0; (i = sg_next_client(call->in, i)) < SG_CLIENTS_MAX; i++) {
        if (was_busy(call, i, first, last)) {
            return true;
        }
    }
    return false;
}

/* Lists the processes that were busy in any reported sample later than a time stamp. */
static unsigned int busy_processes(struct nvml_call *call, unsigned long long since,
                                   struct usage list[SG_CLIENTS_MAX]) {
    unsigned int n = 0;
    uint64_t last;
    uint64_t first;

    usage_catch_up(call);
    if (usage_new_samples(call, since, &first) == 0) {
        return 0;
    }
    last = told(call);
    /* Finding out who lives takes a system call for each; skip that for an idle device. */
    if (!anybody_was_busy(call, first, last)) {
        return 0;
    }
    sg_state_lock(call->in);
    sg_reap(call->in);
    for (uint32_t i = 0; (i = sg_next_client(call->in, i)) < SG_CLIENTS_MAX; i++) {
        const struct sg_client *client = &call->in->state->clients[i];
        const struct sg_channel *channel = sg_channel(call->in, i, call->index);

        if (was_busy(call, i, first, last)) {
            list[n++] = (struct usage){
                .who = client->who, .percent = usage_percent(channel->samples, last, window(call))};
        }
    }
    sg_state_unlock(call->in);
    return name_busy(list, n);
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *list,
                                             unsigned int *count, unsigned long long since) {
    struct usage busy[SG_CLIENTS_MAX];

    NVML_DEVICE(call, device)
    NVML_REQUIRE(count);
    NVML_NOT_DIVIDED(call)
    unsigned int n = busy_processes(&call, since, busy);
    if (n == 0 && list) {
        *count = 0;
        return NVML_ERROR_NOT_FOUND;
    }
    if (!list) { /* asks how many there may be, of which some come meanwhile */
        *count = n + SPARE;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    nvmlReturn_t result = nvml_room(count, list, n);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < n; i++) {
        list[i] = (nvmlProcessUtilizationSample_t){
            .pid = busy[i].pid,
            .timeStamp = nvml_stamp(told(&call) * SG_SAMPLE_NS),
            .smUtil = busy[i].percent,
            .memUtil = busy[i].percent / 2,
        };
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t *list) {
    struct usage busy[SG_CLIENTS_MAX];

    NVML_DEVICE(call, device)
    NVML_REQUIRE(list);
    if (list->version != NVML_STRUCT_VERSION(nvmlProcessesUtilizationInfo_t, 1)) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    NVML_NOT_DIVIDED(call)
    unsigned int n = busy_processes(&call, list->lastSeenTimeStamp, busy);
    nvmlReturn_t result = nvml_room(&list->processSamplesCount, list->procUtilArray, n);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < n; i++) {
        list->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
            .pid = busy[i].pid,
            .timeStamp = nvml_stamp(told(&call) * SG_SAMPLE_NS),
            .smUtil = busy[i].percent,
            .memUtil = busy[i].percent / 2,
        };
    }
    return result;
}

/* Video engines are never busy. The period is NVML's, in microseconds. */
static nvmlReturn_t idle_engine(nvmlDevice_t device, unsigned int *utilization,
                                unsigned int *period) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(utilization && period);
    NVML_NOT_DIVIDED(call)
    *utilization = 0;
    *period = (unsigned int)(SG_SAMPLE_NS / 1000);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *utilization,
                                             unsigned int *period) {
    return idle_engine(device, utilization, period);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *utilization,
                                             unsigned int *period) {
    return idle_engine(device, utilization, period);
}
