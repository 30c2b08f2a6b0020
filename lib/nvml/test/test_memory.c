/* Memory, processes and load as a program in a share sees them, against charges that are made in
 * the state page by this process and a child of it. */
#define _GNU_SOURCE
#include "nvml/test/setting.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct setting setting;
static dv_share *share;

#define CALL(fn, ...) NVML(&setting, fn)(__VA_ARGS__)
#define CHARGED (512 * MIB) /* by this process on GPU 1 */
#define OTHERS (512 * MIB)  /* by its child */

/* A neighbour outside the share, as the driver lists it. */
#define STRANGER 1u

static void charge(unsigned device, uint64_t bytes) {
    CHECK(dv_reserve(share, device, bytes) == DV_OK);
    dv_settle(share, device, bytes, bytes);
}

/* A second process of the tenant that holds memory on GPU 1 until `until` is closed. */
static pid_t start_child(int *until) {
    int ready[2], end[2];
    char byte;
    CHECK(pipe(ready) == 0 && pipe(end) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(end[1]);
        dv_share_forked(share);
        charge(1, OTHERS);
        (void)!write(ready[1], "", 1);
        (void)!read(end[0], &byte, 1);
        _exit(0);
    }
    close(end[0]);
    close(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    *until = end[1];
    return child;
}

static void test_memory(void) {
    nvmlMemory_t memory;
    nvmlMemory_v2_t newer = {.version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)};
    setting.driver->used[1] = 3 * GIB; /* neighbours included */
    CHECK_EQUAL(CALL(nvmlDeviceGetMemoryInfo, setting.gpu[1], &memory), NVML_SUCCESS);
    CHECK_EQUAL(memory.total, LIMIT_GPU_1);
    CHECK_EQUAL(memory.used, CHARGED + OTHERS);
    CHECK_EQUAL(memory.free, LIMIT_GPU_1 - CHARGED - OTHERS);
    CHECK_EQUAL(CALL(nvmlDeviceGetMemoryInfo_v2, setting.gpu[1], &newer), NVML_SUCCESS);
    CHECK_EQUAL(newer.total, LIMIT_GPU_1);
    CHECK_EQUAL(newer.used, CHARGED + OTHERS);
    CHECK_EQUAL(newer.free, LIMIT_GPU_1 - CHARGED - OTHERS);
    CHECK_EQUAL(newer.reserved, 0);
    CHECK_EQUAL(CALL(nvmlDeviceGetMemoryInfo, setting.gpu[2], &memory), NVML_SUCCESS);
    CHECK_EQUAL(memory.total, LIMIT_GPU_2);
    CHECK_EQUAL(memory.used, 0);
    CHECK(!setting.driver->met_ourselves);
}

/* What is free is never more than the GPU has, and pending and overhead count as used. */
static void test_memory_bounds(void) {
    nvmlMemory_t memory;
    setting.driver->used[1] = FAKE_TOTAL - 3 * MIB;
    CHECK_EQUAL(CALL(nvmlDeviceGetMemoryInfo, setting.gpu[1], &memory), NVML_SUCCESS);
    CHECK_EQUAL(memory.free, 3 * MIB);
    setting.driver->used[1] = 0;

    CHECK(dv_reserve(share, 1, 64 * MIB) == DV_OK);
    CHECK_EQUAL(CALL(nvmlDeviceGetMemoryInfo, setting.gpu[1], &memory), NVML_SUCCESS);
    CHECK_EQUAL(memory.used, CHARGED + OTHERS + 64 * MIB);
    dv_settle(share, 1, 64 * MIB, 0);

    dv_overhead(share, 1, 2 * LIMIT_GPU_1);
    CHECK_EQUAL(CALL(nvmlDeviceGetMemoryInfo, setting.gpu[1], &memory), NVML_SUCCESS);
    CHECK_EQUAL(memory.used, LIMIT_GPU_1);
    CHECK_EQUAL(memory.free, 0);
    dv_overhead(share, 1, 0);
}

static void test_memory_arguments(void) {
    nvmlMemory_t memory = {.total = 77};
    nvmlMemory_v2_t newer = {.version = sizeof newer, .total = 77};
    nvmlBAR1Memory_t window;
    CHECK_EQUAL(CALL(nvmlDeviceGetMemoryInfo, setting.gpu[0], &memory),
                NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(CALL(nvmlDeviceGetMemoryInfo, NULL, &memory), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(CALL(nvmlDeviceGetMemoryInfo, setting.gpu[1], NULL), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(memory.total, 77);
    CHECK_EQUAL(CALL(nvmlDeviceGetMemoryInfo_v2, setting.gpu[1], &newer),
                NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    newer.version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2);
    CHECK_EQUAL(CALL(nvmlDeviceGetMemoryInfo_v2, setting.gpu[3], &newer),
                NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(newer.total, 77);
    CHECK_EQUAL(CALL(nvmlDeviceGetMemoryInfo, setting.gpu[FAKE_MIG], &memory), NVML_SUCCESS);
    CHECK_EQUAL(memory.used, 1); /* a MIG instance's figures are its own */
    CHECK_EQUAL(CALL(nvmlDeviceGetBAR1MemoryInfo, setting.gpu[1], &window), NVML_SUCCESS);
    CHECK_EQUAL(window.bar1Total, LIMIT_GPU_1);
    CHECK_EQUAL(window.bar1Used + window.bar1Free, window.bar1Total);
}

/* The driver lists a stranger and the child, and does not know this process's charge. */
static void list_processes(pid_t child) {
    setting.driver->process_count = 0;
    for (unsigned int at = 0; at < FAKE_PROCESSES; at++) {
        setting.driver->processes[setting.driver->process_count++] =
            (struct fake_process){.gpu = 1, .pid = STRANGER, .memory = 1, .sm = 1, .encoder = 1};
    }
    setting.driver->processes[20].pid = (unsigned int)child;
    setting.driver->processes[20].sm = 30;
    setting.driver->processes[20].memory = 4711;
    setting.driver->processes[39].pid = (unsigned int)getpid();
    setting.driver->processes[39].sm = 12;
    setting.driver->processes[39].encoder = 5;
}

static void test_compute_processes(pid_t child) {
    nvmlProcessInfo_t infos[4];
    nvmlProcessInfo_v1_t narrow[4];
    unsigned int count = 0;
    memset(narrow, 0x77, sizeof narrow);
    CHECK_EQUAL(CALL(nvmlDeviceGetComputeRunningProcesses_v3, setting.gpu[1], &count, NULL),
                NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(CALL(nvmlDeviceGetComputeRunningProcesses_v3, setting.gpu[1], &count, NULL),
                NVML_ERROR_INVALID_ARGUMENT);
    count = 4;
    CHECK_EQUAL(CALL(nvmlDeviceGetComputeRunningProcesses_v3, setting.gpu[1], &count, infos),
                NVML_SUCCESS);
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(infos[0].pid + infos[1].pid, (unsigned)getpid() + (unsigned)child);
    CHECK_EQUAL(infos[0].usedGpuMemory, CHARGED);
    CHECK_EQUAL(infos[1].usedGpuMemory, OTHERS);
    CHECK_EQUAL(infos[1].gpuInstanceId, NVML_INSTANCE_ID_ANY);

    count = 2;
    CHECK_EQUAL(CALL(nvmlDeviceGetComputeRunningProcesses, setting.gpu[1], &count, narrow),
                NVML_SUCCESS);
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(narrow[0].pid + narrow[1].pid, (unsigned)getpid() + (unsigned)child);
    CHECK_EQUAL(narrow[1].usedGpuMemory, OTHERS);
    CHECK_EQUAL(narrow[2].pid, 0x77777777u);

    count = 4;
    CHECK_EQUAL(CALL(nvmlDeviceGetComputeRunningProcesses_v3, setting.gpu[2], &count, infos),
                NVML_SUCCESS);
    CHECK_EQUAL(count, 0);
    CHECK_EQUAL(CALL(nvmlDeviceGetComputeRunningProcesses_v3, setting.gpu[0], &count, infos),
                NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(CALL(nvmlDeviceGetComputeRunningProcesses_v3, NULL, &count, infos),
                NVML_ERROR_INVALID_ARGUMENT);
}

static void test_other_lists(pid_t child) {
    nvmlProcessInfo_t infos[4];
    nvmlEncoderSessionInfo_t sessions[4];
    unsigned int count = 4, pids[4];
    CHECK_EQUAL(CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, setting.gpu[1], &count, infos),
                NVML_SUCCESS);
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(infos[0].pid, child);
    CHECK_EQUAL(infos[0].usedGpuMemory, 4711);
    CHECK_EQUAL(CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3, setting.gpu[1], &count, infos),
                NVML_SUCCESS);
    CHECK_EQUAL(infos[0].usedGpuMemory, OTHERS);
    count = 1;
    CHECK_EQUAL(CALL(nvmlDeviceGetEncoderSessions, setting.gpu[1], &count, sessions),
                NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(CALL(nvmlDeviceGetEncoderSessions, setting.gpu[1], &count, sessions), NVML_SUCCESS);
    CHECK_EQUAL(sessions[1].pid, getpid());
    CHECK_EQUAL(CALL(nvmlDeviceGetAccountingPids, setting.gpu[1], &count, pids), NVML_SUCCESS);
    CHECK_EQUAL(pids[0], child);

    nvmlAccountingStats_t stats = {.maxMemoryUsage = 77};
    CHECK_EQUAL(CALL(nvmlDeviceGetAccountingStats, setting.gpu[1], STRANGER, &stats),
                NVML_ERROR_NOT_FOUND);
    CHECK_EQUAL(stats.maxMemoryUsage, 77);
    CHECK_EQUAL(CALL(nvmlDeviceGetAccountingStats, setting.gpu[1], pids[0], &stats), NVML_SUCCESS);
    CHECK_EQUAL(stats.maxMemoryUsage, 4711);

    nvmlProcessDetail_v1_t details[4];
    nvmlProcessDetailList_t list = {.mode = NVML_PROCESS_MODE_COMPUTE};
    CHECK_EQUAL(CALL(nvmlDeviceGetRunningProcessDetailList, setting.gpu[1], &list),
                NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    list.version = NVML_STRUCT_VERSION(nvmlProcessDetailList_t, 1);
    CHECK_EQUAL(CALL(nvmlDeviceGetRunningProcessDetailList, setting.gpu[1], &list),
                NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK_EQUAL(list.numProcArrayEntries, 2);
    list.procArray = details;
    CHECK_EQUAL(CALL(nvmlDeviceGetRunningProcessDetailList, setting.gpu[1], &list), NVML_SUCCESS);
    CHECK_EQUAL(details[0].usedGpuMemory, CHARGED);
}

static void test_load(pid_t child) {
    nvmlUtilization_t rates;
    unsigned int percent, period, count = 1;
    nvmlProcessUtilizationSample_t samples[4];
    CHECK_EQUAL(CALL(nvmlDeviceGetUtilizationRates, setting.gpu[1], &rates), NVML_SUCCESS);
    CHECK_EQUAL(rates.gpu, 42);
    CHECK_EQUAL(rates.memory, 21);
    CHECK_EQUAL(CALL(nvmlDeviceGetUtilizationRates, setting.gpu[2], &rates), NVML_SUCCESS);
    CHECK_EQUAL(rates.gpu, 0);
    CHECK_EQUAL(CALL(nvmlDeviceGetEncoderUtilization, setting.gpu[1], &percent, &period),
                NVML_SUCCESS);
    CHECK_EQUAL(percent, 6);

    CHECK_EQUAL(CALL(nvmlDeviceGetProcessUtilization, setting.gpu[1], NULL, &count, 0),
                NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(CALL(nvmlDeviceGetProcessUtilization, setting.gpu[1], samples, &count, 0),
                NVML_SUCCESS);
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(samples[0].pid, child);
    CHECK_EQUAL(CALL(nvmlDeviceGetProcessUtilization, setting.gpu[1], samples, &count, ~0ull),
                NVML_ERROR_NOT_FOUND);

    nvmlSample_t points[2];
    nvmlValueType_t type;
    count = 2;
    CHECK_EQUAL(CALL(nvmlDeviceGetSamples, setting.gpu[1], NVML_GPU_UTILIZATION_SAMPLES, 0, &type,
                     &count, points),
                NVML_SUCCESS);
    CHECK_EQUAL(points[1].sampleValue.uiVal, 42);
    CHECK_EQUAL(CALL(nvmlDeviceGetSamples, setting.gpu[1], NVML_TOTAL_POWER_SAMPLES, 0, &type,
                     &count, points),
                NVML_SUCCESS);
    CHECK_EQUAL(points[1].sampleValue.uiVal, 96);

    /* Where the driver cannot tell processes apart, the whole GPU's figure is all there is. */
    setting.driver->no_samples = true;
    CHECK_EQUAL(CALL(nvmlDeviceGetUtilizationRates, setting.gpu[1], &rates), NVML_SUCCESS);
    CHECK_EQUAL(rates.gpu, 99);
    setting.driver->no_samples = false;
}

/* What a dead process held is free at the next question, with nobody else to clean up. */
static void test_death(pid_t child, int until) {
    nvmlMemory_t memory;
    unsigned int count = 4;
    nvmlProcessInfo_t infos[4];
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    close(until);
    CHECK_EQUAL(CALL(nvmlDeviceGetMemoryInfo, setting.gpu[1], &memory), NVML_SUCCESS);
    CHECK_EQUAL(memory.used, CHARGED);
    CHECK_EQUAL(CALL(nvmlDeviceGetComputeRunningProcesses_v3, setting.gpu[1], &count, infos),
                NVML_SUCCESS);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(infos[0].pid, getpid());
}

int main(void) {
    int until;
    setting_make(&setting);
    CHECK(dv_share_open(setting.directory, &share, NULL) == DV_OK);
    charge(1, CHARGED);
    pid_t child = start_child(&until);
    list_processes(child);
    CHECK_EQUAL(CALL(nvmlInit_v2, ), NVML_SUCCESS);
    test_memory();
    test_memory_bounds();
    test_memory_arguments();
    test_compute_processes(child);
    test_other_lists(child);
    test_load(child);
    test_death(child, until);
    return 0;
}
