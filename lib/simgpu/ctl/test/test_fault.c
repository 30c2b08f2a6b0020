/* Faults on demand: by name, by class, counted, slow; and events. */
#include <pthread.h>
#include <unistd.h>

#include "abi/generated/nvml_functions.h"
#include "simgpu/ctl/ctl.h"
#include "simgpu/machine/test/setting.h"

static nvmlDevice_t devices[2];
static const char *directory;

static nvmlReturn_t ask_memory(unsigned int gpu) {
    nvmlMemory_t memory;

    return nvmlDeviceGetMemoryInfo(devices[gpu], &memory);
}

static nvmlReturn_t ask_index(unsigned int gpu) {
    unsigned int index;

    return nvmlDeviceGetIndex(devices[gpu], &index);
}

static void inject(const char *call, uint32_t result, uint32_t delay_us, uint64_t count) {
    struct ctl_injection what = {call, result, delay_us, count};

    CHECK_EQUAL(ctl_inject(directory, 0, &what), 0);
}

static void check_named(void) {
    inject("nvmlDeviceGetMemoryInfo", NVML_ERROR_UNKNOWN, 0, 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(ask_memory(0), NVML_ERROR_UNKNOWN);
    }
    CHECK_EQUAL(ask_memory(1), NVML_SUCCESS);
    CHECK_EQUAL(ask_index(0), NVML_SUCCESS);
    inject("nvmlDeviceGetMemoryInfo", NVML_ERROR_GPU_IS_LOST, 0, 2);
    CHECK_EQUAL(ask_memory(0), NVML_ERROR_GPU_IS_LOST);
    CHECK_EQUAL(ask_memory(0), NVML_ERROR_GPU_IS_LOST);
    CHECK_EQUAL(ask_memory(0), NVML_SUCCESS);
}

static void check_class(void) {
    inject("nvml", NVML_ERROR_NOT_READY, 0, 0);
    CHECK_EQUAL(ask_memory(0), NVML_ERROR_NOT_READY);
    CHECK_EQUAL(ask_index(0), NVML_ERROR_NOT_READY);
    CHECK_EQUAL(ask_index(1), NVML_SUCCESS);
    CHECK_EQUAL(ctl_clear(directory, 0), 0);
    CHECK_EQUAL(ask_memory(0), NVML_SUCCESS);
}

static void check_delay(void) {
    inject("nvmlDeviceGetIndex", 0, 30000, 1);
    uint64_t begin = sg_now();
    CHECK_EQUAL(ask_index(0), NVML_SUCCESS);
    CHECK(sg_now() - begin >= 30000000u);
    CHECK_EQUAL(ctl_clear(directory, 0), 0);
}

/* What two threads ask of the silent GPU, in a call about it and for its handle. */
static uint32_t answered;

static void *ask_silent(void *argument) {
    nvmlDevice_t device;

    if (argument) {
        CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
    } else {
        CHECK_EQUAL(ask_memory(0), NVML_SUCCESS);
    }
    __atomic_fetch_add(&answered, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void *init_silent(void *argument) {
    (void)argument;
    CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
    __atomic_fetch_add(&answered, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Until it is told otherwise a silent GPU answers nobody, and the others answer everybody. */
static void check_silence(void) {
    pthread_t askers[3];
    nvmlDevice_t device;

    inject("silent", 0, 0, 0);
    pthread_create(&askers[0], NULL, ask_silent, NULL);
    pthread_create(&askers[1], NULL, ask_silent, &answered);
    for (int i = 0; i < 1000; i++) {
        CHECK_EQUAL(ask_memory(1), NVML_SUCCESS);
        CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(1, &device), NVML_SUCCESS);
    }
    CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
    inject("silent-init", 0, 0, 0);
    pthread_create(&askers[2], NULL, init_silent, NULL);
    usleep(20000); /* long enough to find an asker that does not wait */
    CHECK_EQUAL(__atomic_load_n(&answered, __ATOMIC_ACQUIRE), 0);
    CHECK_EQUAL(ctl_clear(directory, 0), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(askers[i], NULL);
    }
    CHECK_EQUAL(answered, 3);
    CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
    CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
}

/* A reset ends the silence. Who had NVML open lost that GPU, and finds it when it opens NVML
 * anew. */
static void check_reset(void) {
    nvmlDevice_t device;

    inject("silent", 0, 0, 0);
    inject("reset", 0, 0, 0);
    CHECK_EQUAL(ask_memory(0), NVML_ERROR_GPU_IS_LOST);
    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_ERROR_GPU_IS_LOST);
    CHECK_EQUAL(ask_memory(1), NVML_SUCCESS);
    CHECK_EQUAL(ctl_clear(directory, 0), 0);
    CHECK_EQUAL(ask_memory(0), NVML_ERROR_GPU_IS_LOST);
    CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
    CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
    CHECK_EQUAL(ask_memory(0), NVML_SUCCESS);
}

static void check_limits(void) {
    struct ctl_injection what = {"nvmlDeviceGetIndex", 1, 0, 0};
    char name[] = "nvmlDeviceGetA";

    CHECK_EQUAL(ctl_inject(directory, GPU_COUNT, &what), 1);
    what.call = "";
    CHECK_EQUAL(ctl_inject(directory, 0, &what), 1);
    what.call = name;
    for (unsigned int i = 0; i < SG_CALL_FAULTS; i++, name[sizeof name - 2]++) {
        CHECK_EQUAL(ctl_inject(directory, 0, &what), 0);
    }
    CHECK_EQUAL(ctl_inject(directory, 0, &what), 1);
    CHECK_EQUAL(ctl_clear(directory, 0), 0);
    CHECK_EQUAL(ctl_inject(directory, 0, &what), 0);
    CHECK_EQUAL(ctl_clear(directory, 0), 0);
}

static void check_events(void) {
    nvmlEventSet_t set;
    nvmlEventData_t data;

    inject("xid", 31, 0, 0); /* before anybody listens */
    CHECK_EQUAL(nvmlEventSetCreate(&set), NVML_SUCCESS);
    CHECK_EQUAL(nvmlDeviceRegisterEvents(devices[0], nvmlEventTypePState, set),
                NVML_ERROR_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceRegisterEvents(devices[0], nvmlEventTypeXidCriticalError, set),
                NVML_SUCCESS);
    uint64_t begin = sg_now();
    CHECK_EQUAL(nvmlEventSetWait_v2(set, &data, 20), NVML_ERROR_TIMEOUT);
    CHECK(sg_now() - begin >= 20000000u);
    for (int i = 0; i < 2; i++) {
        inject("xid", 79, 0, 0);
        CHECK_EQUAL(nvmlEventSetWait_v2(set, &data, 10000), NVML_SUCCESS);
        CHECK(data.device == devices[0]);
        CHECK_EQUAL(data.eventType, nvmlEventTypeXidCriticalError);
        CHECK_EQUAL(data.eventData, 79);
    }
    CHECK_EQUAL(ctl_clear(directory, 0), 0);
    CHECK_EQUAL(nvmlEventSetWait_v2(set, &data, 0), NVML_ERROR_TIMEOUT);
    CHECK_EQUAL(nvmlEventSetFree(set), NVML_SUCCESS);
}

int main(void) {
    sim_machine machine;

    setting_describe(&machine);
    directory = setting_make(&machine);
    CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
    for (unsigned int i = 0; i < 2; i++) {
        CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(i, &devices[i]), NVML_SUCCESS);
    }
    check_named();
    check_class();
    check_delay();
    check_limits();
    check_silence();
    check_reset();
    check_events();
    CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
    return 0;
}
