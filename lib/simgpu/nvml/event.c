/* NVML: events. The only ones are the errors that simgpuctl injects. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "simgpu/nvml/call.h"

#define SUPPORTED ((unsigned long long)nvmlEventTypeXidCriticalError)
#define LOOK_EVERY_NS 5000000

/* The devices a set listens to, and the last error seen of each: the injected number counts in its
 * high half, so that the same error twice is two events. */
struct nvmlEventSet_st {
    pthread_mutex_t lock;
    bool wanted[SG_GPUS_MAX];
    uint64_t seen[SG_GPUS_MAX];
};

static uint64_t last_xid(struct sg_instance *in, uint32_t gpu) {
    return __atomic_load_n(&in->state->gpus[gpu].faults.xid, __ATOMIC_ACQUIRE);
}

NVML_GETTER(nvmlDeviceGetSupportedEventTypes, unsigned long long, SUPPORTED)

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    NVML_SYSTEM(call)
    NVML_REQUIRE(set);
    *set = calloc(1, sizeof **set);
    if (!*set) {
        return NVML_ERROR_MEMORY;
    }
    pthread_mutex_init(&(*set)->lock, NULL);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    NVML_SYSTEM(call)
    NVML_REQUIRE(set);
    pthread_mutex_destroy(&set->lock);
    free(set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                      nvmlEventSet_t set) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(set && types);
    if (types & ~SUPPORTED) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    pthread_mutex_lock(&set->lock);
    set->wanted[call.index] = true;
    set->seen[call.index] = last_xid(call.in, call.index);
    pthread_mutex_unlock(&set->lock);
    return NVML_SUCCESS;
}

/* Writes the oldest event that was not delivered yet; NVML_ERROR_TIMEOUT when there is none. */
static nvmlReturn_t look(nvmlEventSet_t set, nvmlEventData_t *data) {
    nvmlReturn_t result = NVML_ERROR_TIMEOUT;

    NVML_SYSTEM(call)
    pthread_mutex_lock(&set->lock);
    for (uint32_t i = 0; i < call.machine->gpu_count && result != NVML_SUCCESS; i++) {
        uint64_t xid = last_xid(call.in, i);
        if (!set->wanted[i] || xid == set->seen[i]) {
            continue;
        }
        set->seen[i] = xid;
        *data = (nvmlEventData_t){
            .device = nvml_handle(i),
            .eventType = SUPPORTED,
            .eventData = (uint32_t)xid,
            .gpuInstanceId = NVML_INSTANCE_ID_ANY,
            .computeInstanceId = NVML_INSTANCE_ID_ANY,
        };
        result = NVML_SUCCESS;
    }
    pthread_mutex_unlock(&set->lock);
    return result;
}

/* The library lock is not held while it sleeps: a shutdown ends the wait. */
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
                                 unsigned int timeout_ms) {
    const struct timespec pause = {.tv_nsec = LOOK_EVERY_NS};
    uint64_t end = sg_now() + timeout_ms * UINT64_C(1000000);

    if (!nvml_in_use()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    NVML_REQUIRE(set && data);
    for (;;) {
        nvmlReturn_t result = look(set, data);
        if (result != NVML_ERROR_TIMEOUT || sg_now() >= end) {
            return result;
        }
        nanosleep(&pause, NULL);
    }
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    return nvmlEventSetWait_v2(set, data, timeout_ms);
}
