/* Threads that ask while others initialise and shut down, and children of fork. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi/generated/nvml_functions.h"
#include "simgpu/machine/test/setting.h"

#define THREADS 4
#define ROUNDS 200

static bool known(nvmlReturn_t result) {
    return result == NVML_SUCCESS || result == NVML_ERROR_UNINITIALIZED;
}

static void *ask(void *nothing) {
    nvmlProcessInfo_t list[8];
    nvmlUtilization_t rates;
    nvmlMemory_t memory;
    nvmlDevice_t device;

    (void)nothing;
    for (int i = 0; i < ROUNDS; i++) {
        unsigned int count = 8;

        CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
        CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
        CHECK_EQUAL(nvmlDeviceGetMemoryInfo(device, &memory), NVML_SUCCESS);
        CHECK_EQUAL(memory.used, GPU_RESERVED + 5 * SG_BLOCK_BYTES);
        CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
        /* Others may have shut down, or not. */
        CHECK(known(nvmlDeviceGetUtilizationRates(device, &rates)));
        CHECK(known(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list)));
    }
    return NULL;
}

static void check_threads(void) {
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, ask, NULL), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQUAL(pthread_join(threads[i], NULL), 0);
    }
}

/* A child goes on with what its parent initialised, and its end does not end the parent's use. */
static void check_fork(void) {
    nvmlDevice_t device;
    nvmlMemory_t memory;
    int status;

    CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        nvmlReturn_t result = nvmlDeviceGetMemoryInfo(device, &memory);
        _exit(result == NVML_SUCCESS && nvmlShutdown() == NVML_SUCCESS ? 0 : 1);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo(device, &memory), NVML_SUCCESS);
    CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
}

int main(void) {
    sim_machine machine;

    setting_describe(&machine);
    setting_make(&machine);
    pid_t process = setting_process("a", 0, 5, 0);
    check_threads();
    check_fork();
    setting_kill(process);
    return 0;
}
