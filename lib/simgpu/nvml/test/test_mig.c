/* MIG as NVML shows it: the mode, profiles, instances, devices, what refuses to end. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "simgpu/machine/test/setting.h"
#include "simgpu/nvml/call.h"

#define OK(call) CHECK_EQUAL(call, NVML_SUCCESS)
#define FAILS(call, result) CHECK_EQUAL(call, result)
#define MIG_GPU (GPU_COUNT - 1) /* begins in MIG mode */

static nvmlDevice_t gpu_at(unsigned int index) {
    nvmlDevice_t device;

    OK(nvmlDeviceGetHandleByIndex_v2(index, &device));
    return device;
}

static void expect_mode(nvmlDevice_t device, unsigned int current, unsigned int pending) {
    unsigned int now, next;

    OK(nvmlDeviceGetMigMode(device, &now, &next));
    CHECK_EQUAL(now, current);
    CHECK_EQUAL(next, pending);
}

static nvmlGpuInstance_t create(nvmlDevice_t device, unsigned int profile, unsigned int start,
                                unsigned int size) {
    nvmlGpuInstance_t gi;
    nvmlGpuInstancePlacement_t at = {start, size};
    nvmlGpuInstanceInfo_t info;

    OK(nvmlDeviceCreateGpuInstanceWithPlacement(device, profile, &at, &gi));
    OK(nvmlGpuInstanceGetInfo(gi, &info));
    CHECK(info.device == device);
    CHECK_EQUAL(info.profileId, profile);
    CHECK_EQUAL(info.placement.start, start);
    CHECK_EQUAL(info.placement.size, size);
    return gi;
}

static nvmlComputeInstance_t compute(nvmlGpuInstance_t gi, unsigned int profile) {
    nvmlComputeInstance_t ci;

    OK(nvmlGpuInstanceCreateComputeInstance(gi, profile, &ci));
    return ci;
}

/* What another opener of the machine does to a change of the mode, and a driver that cannot reset the GPU. */
static void check_mode(bool hopper) {
    struct sg_instance other;
    nvmlReturn_t status;
    nvmlDevice_t device = gpu_at(0);

    expect_mode(device, 0, 0);
    FAILS(nvmlDeviceSetMigMode(device, 2, &status), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(sg_open(&other, getenv("DIVVY_SIMGPU"), "", false), 0);
    OK(nvmlDeviceSetMigMode(device, 1, &status));
    CHECK_EQUAL(status, NVML_ERROR_IN_USE);
    expect_mode(device, 0, 1);
    sg_close(&other);
    OK(nvmlDeviceSetMigMode(device, 0, &status));
    CHECK_EQUAL(status, NVML_SUCCESS); /* the pending mode is taken back */
    expect_mode(device, 0, 0);
    for (unsigned int i = 0; i < 2; i++) { /* an idle GPU changes at once, by a reset on Ampere */
        CHECK_EQUAL(sg_open(&other, getenv("DIVVY_SIMGPU"), "", false), 0);
        sg_slice_level_set(&other, 0, SG_SLICE_LONG);
        sg_close(&other);
        OK(nvmlDeviceSetMigMode(device, !i, &status));
        CHECK_EQUAL(status, NVML_SUCCESS);
        expect_mode(device, !i, !i);
        CHECK_EQUAL(sg_open(&other, getenv("DIVVY_SIMGPU"), "", false), 0);
        CHECK_EQUAL(sg_slice_level(&other, 0), hopper ? SG_SLICE_LONG : SG_SLICE_DEFAULT);
        other.state->gpus[0].faults.unresettable = i;
        sg_close(&other);
    }
    OK(nvmlDeviceSetMigMode(device, 1, &status)); /* where the driver cannot reset the GPU */
    CHECK_EQUAL(status, hopper ? NVML_SUCCESS : NVML_ERROR_RESET_REQUIRED);
    expect_mode(device, hopper, 1);
    OK(nvmlDeviceSetMigMode(device, 0, &status));
    expect_mode(device, 0, 0);
}

static void check_profiles(nvmlDevice_t device) {
    nvmlGpuInstanceProfileInfo_t info;
    nvmlGpuInstanceProfileInfo_v2_t named = {
        .version = NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2)};
    nvmlGpuInstancePlacement_t places[8];
    unsigned int known = 0, count;

    for (unsigned int kind = 0; kind < NVML_GPU_INSTANCE_PROFILE_COUNT; kind++) {
        known += nvmlDeviceGetGpuInstanceProfileInfo(device, kind, &info) == NVML_SUCCESS;
    }
    CHECK_EQUAL(known, 7);
    FAILS(nvmlDeviceGetGpuInstanceProfileInfo(device, 3000, &info), NVML_ERROR_INVALID_ARGUMENT);
    FAILS(nvmlDeviceGetGpuInstanceProfileInfo(device, 6, &info), NVML_ERROR_NOT_SUPPORTED);
    OK(nvmlDeviceGetGpuInstanceProfileInfo(device, 2, &info));
    CHECK_EQUAL(info.id, 9);
    CHECK_EQUAL(info.sliceCount, 3);
    CHECK_EQUAL(info.instanceCount, 2);
    CHECK_EQUAL(info.memorySizeMB, 112);
    OK(nvmlDeviceGetGpuInstanceProfileInfoV(device, 2, &named));
    CHECK_EQUAL(strcmp(named.name, "MIG 3g.112mb"), 0);
    named.version = 7;
    FAILS(nvmlDeviceGetGpuInstanceProfileInfoV(device, 2, &named),
          NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    OK(nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, 9, NULL, &count));
    CHECK_EQUAL(count, 2);
    OK(nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, 9, places, &count));
    CHECK_EQUAL(places[0].start, 0);
    CHECK_EQUAL(places[1].start, 4);
    CHECK_EQUAL(places[1].size, 4);
    FAILS(nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, 77, places, &count),
          NVML_ERROR_INVALID_ARGUMENT);
    FAILS(nvmlDeviceGetGpuInstancePossiblePlacements_v2(gpu_at(0), 9, places, &count),
          NVML_ERROR_NOT_SUPPORTED);
}

static unsigned int remaining(nvmlDevice_t device, unsigned int profile) {
    unsigned int count;

    OK(nvmlDeviceGetGpuInstanceRemainingCapacity(device, profile, &count));
    return count;
}

/* What a file of the machine's directory says; empty for one that is not there. */
static const char *content(const char *name) {
    static char text[128];
    char path[256];

    snprintf(path, sizeof path, "%s/%s", getenv("DIVVY_SIMGPU"), name);
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[length] = '\0';
    if (file) {
        fclose(file);
    }
    return text;
}

static bool exists(const char *name) {
    char path[256];

    snprintf(path, sizeof path, "%s/%s", getenv("DIVVY_SIMGPU"), name);
    return access(path, F_OK) == 0;
}

/* As `divvy simgpu start` leaves the directory. */
static void make_folders(const char *directory) {
    static const char *const folders[] = {"dev",
                                          "dev/nvidia-caps",
                                          "proc",
                                          "proc/driver",
                                          "proc/driver/nvidia",
                                          "proc/driver/nvidia/capabilities",
                                          "proc/driver/nvidia/capabilities/gpu3",
                                          "proc/driver/nvidia/capabilities/gpu3/mig"};
    char path[256];

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, folders[i]);
        CHECK_EQUAL(mkdir(path, 0755), 0);
    }
}

#define CAPABILITIES "proc/driver/nvidia/capabilities/gpu3/mig/"

/* Numbers: three of the machine, 135 for each GPU before, 9 for each GPU instance. */
static void check_files(nvmlDevice_t device) {
    nvmlGpuInstance_t gi = create(device, 9, 0, 4);

    CHECK_EQUAL(strcmp(content(CAPABILITIES "gi1/access"),
                       "DeviceFileMinor: 417\nDeviceFileMode: 292\nDeviceFileModify: 1\n"),
                0);
    CHECK(exists("dev/nvidia-caps/nvidia-cap417"));
    CHECK(!exists(CAPABILITIES "gi1/ci0"));
    nvmlComputeInstance_t ci = compute(gi, 2);
    CHECK_EQUAL(strncmp(content(CAPABILITIES "gi1/ci0/access"), "DeviceFileMinor: 418\n", 21), 0);
    CHECK(exists("dev/nvidia-caps/nvidia-cap418"));
    OK(nvmlComputeInstanceDestroy(ci));
    CHECK(!exists(CAPABILITIES "gi1/ci0") && !exists("dev/nvidia-caps/nvidia-cap418"));
    CHECK(exists(CAPABILITIES "gi1"));
    OK(nvmlGpuInstanceDestroy(gi));
    CHECK(!exists(CAPABILITIES "gi1") && !exists("dev/nvidia-caps/nvidia-cap417"));
}

/* A layout by hand, what fits beside it, and what the driver chooses. */
static void check_placement(nvmlDevice_t device) {
    nvmlGpuInstance_t gi, found[8];
    nvmlGpuInstanceInfo_t info;
    nvmlGpuInstancePlacement_t at = {0, 1};
    unsigned int count;

    CHECK_EQUAL(remaining(device, 19), 7);
    CHECK_EQUAL(remaining(device, 0), 1);
    nvmlGpuInstance_t half = create(device, 9, 0, 4);
    CHECK_EQUAL(remaining(device, 19), 3);
    CHECK_EQUAL(remaining(device, 15), 2);
    CHECK_EQUAL(remaining(device, 5), 0);
    CHECK_EQUAL(remaining(device, 0), 0);
    FAILS(nvmlDeviceCreateGpuInstance(device, 0, &gi), NVML_ERROR_INSUFFICIENT_RESOURCES);
    FAILS(nvmlDeviceCreateGpuInstanceWithPlacement(device, 19, &at, &gi),
          NVML_ERROR_INSUFFICIENT_RESOURCES);
    at.start = 7;
    FAILS(nvmlDeviceCreateGpuInstanceWithPlacement(device, 19, &at, &gi),
          NVML_ERROR_INVALID_ARGUMENT);
    at = (nvmlGpuInstancePlacement_t){4, 2};
    FAILS(nvmlDeviceCreateGpuInstanceWithPlacement(device, 19, &at, &gi),
          NVML_ERROR_INVALID_ARGUMENT);
    OK(nvmlDeviceCreateGpuInstance(device, 19, &gi));
    OK(nvmlGpuInstanceGetInfo(gi, &info));
    CHECK_EQUAL(info.id, 11); /* the fifth of eight slices */
    OK(nvmlDeviceGetGpuInstances(device, 19, found, &count));
    CHECK_EQUAL(count, 1);
    CHECK(found[0] == gi);
    OK(nvmlDeviceGetGpuInstanceById(device, 11, &found[1]));
    CHECK(found[1] == gi);
    FAILS(nvmlDeviceGetGpuInstanceById(device, 3, &found[1]), NVML_ERROR_NOT_FOUND);
    OK(nvmlGpuInstanceDestroy(gi));
    FAILS(nvmlGpuInstanceDestroy(gi), NVML_ERROR_INVALID_ARGUMENT);
    OK(nvmlGpuInstanceDestroy(half));
    OK(nvmlDeviceCreateGpuInstance(device, 9, &gi));
    OK(nvmlGpuInstanceGetInfo(gi, &info));
    CHECK_EQUAL(info.id, 2);
    OK(nvmlGpuInstanceDestroy(gi));
}

/* The MIG devices of a GPU, and all that is asked of one. */
static void check_devices(nvmlDevice_t device) {
    nvmlGpuInstance_t half = create(device, 9, 4, 4), small = create(device, 19, 0, 1);
    nvmlComputeInstance_t two = compute(half, 1), one = compute(half, 0), all = compute(small, 0),
                          no;
    nvmlDeviceAttributes_t attributes;
    nvmlDevice_t mig, again;
    nvmlMemory_t memory;
    nvmlBAR1Memory_t window, whole;
    unsigned int count, value;
    char text[96];

    FAILS(nvmlGpuInstanceCreateComputeInstance(half, 0, &no), NVML_ERROR_INSUFFICIENT_RESOURCES);
    FAILS(nvmlGpuInstanceCreateComputeInstance(half, 3, &no), NVML_ERROR_NOT_SUPPORTED);
    OK(nvmlDeviceGetMaxMigDeviceCount(device, &count));
    CHECK_EQUAL(count, 7);
    OK(nvmlDeviceGetMigDeviceHandleByIndex(device, 0, &mig));
    OK(nvmlDeviceGetGpuInstanceId(mig, &value));
    CHECK_EQUAL(value, 2);
    OK(nvmlDeviceGetComputeInstanceId(mig, &value));
    CHECK_EQUAL(value, 0);
    OK(nvmlDeviceGetMigDeviceHandleByIndex(device, 2, &again));
    OK(nvmlDeviceGetGpuInstanceId(again, &value));
    CHECK_EQUAL(value, 7);
    OK(nvmlDeviceGetIndex(again, &value));
    CHECK_EQUAL(value, 2);
    OK(nvmlDeviceGetName(mig, text, sizeof text));
    CHECK_EQUAL(strcmp(text, "Simulated GPU MIG 2c.3g.112mb"), 0);
    OK(nvmlDeviceGetAttributes_v2(mig, &attributes));
    CHECK_EQUAL(attributes.multiprocessorCount, 2);
    CHECK_EQUAL(attributes.gpuInstanceSliceCount, 3);
    CHECK_EQUAL(attributes.computeInstanceSliceCount, 2);
    CHECK_EQUAL(attributes.memorySizeMB, 112);
    OK(nvmlDeviceGetMemoryInfo(mig, &memory));
    CHECK_EQUAL(memory.total, 112 * MIB);
    OK(nvmlDeviceGetBAR1MemoryInfo(device, &whole));
    OK(nvmlDeviceGetBAR1MemoryInfo(mig, &window));
    CHECK_EQUAL(window.bar1Total, whole.bar1Total / 2 - MIB);
    CHECK_EQUAL(window.bar1Used, 0);
    OK(nvmlDeviceGetUUID(mig, text, sizeof text));
    CHECK_EQUAL(strncmp(text, "MIG-", 4), 0);
    OK(nvmlDeviceGetHandleByUUID(text, &again));
    CHECK(again == mig);
    OK(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig, &again));
    CHECK(again == device);
    OK(nvmlDeviceIsMigDeviceHandle(mig, &value));
    CHECK_EQUAL(value, 1);
    OK(nvmlDeviceIsMigDeviceHandle(device, &value));
    CHECK_EQUAL(value, 0);
    FAILS(nvmlDeviceGetTemperature(mig, NVML_TEMPERATURE_GPU, &value), NVML_ERROR_NOT_SUPPORTED);
    FAILS(nvmlDeviceGetMigDeviceHandleByIndex(device, 3, &again), NVML_ERROR_NOT_FOUND);
    FAILS(nvmlGpuInstanceDestroy(half), NVML_ERROR_IN_USE);
    OK(nvmlComputeInstanceDestroy(two));
    FAILS(nvmlDeviceGetComputeInstanceId(mig, &value), NVML_ERROR_INVALID_ARGUMENT);
    OK(nvmlComputeInstanceDestroy(one));
    OK(nvmlComputeInstanceDestroy(all));
    OK(nvmlGpuInstanceDestroy(half));
    OK(nvmlGpuInstanceDestroy(small));
}

/* Nothing of load is told of a divided GPU, and the rest is. */
static void check_load(nvmlDevice_t device) {
    nvmlUtilization_t rates;
    nvmlProcessUtilizationSample_t busy[4];
    nvmlSample_t samples[64];
    nvmlValueType_t type;
    unsigned int count = 4, percent, period;

    FAILS(nvmlDeviceGetUtilizationRates(device, &rates), NVML_ERROR_NOT_SUPPORTED);
    FAILS(nvmlDeviceGetProcessUtilization(device, busy, &count, 0), NVML_ERROR_NOT_SUPPORTED);
    FAILS(nvmlDeviceGetEncoderUtilization(device, &percent, &period), NVML_ERROR_NOT_SUPPORTED);
    FAILS(nvmlDeviceGetDecoderUtilization(device, &percent, &period), NVML_ERROR_NOT_SUPPORTED);
    count = 64;
    for (unsigned int kind = NVML_GPU_UTILIZATION_SAMPLES; kind <= NVML_DEC_UTILIZATION_SAMPLES;
         kind++) {
        FAILS(nvmlDeviceGetSamples(device, (nvmlSamplingType_t)kind, 0, &type, &count, samples),
              NVML_ERROR_NOT_SUPPORTED);
    }
    EVENTUALLY(nvmlDeviceGetSamples(device, NVML_TOTAL_POWER_SAMPLES, 0, &type, &count, samples) ==
               NVML_SUCCESS);
    OK(nvmlDeviceGetUtilizationRates(gpu_at(0), &rates));
}

static int as_another_user(void) {
    nvmlReturn_t status;
    nvmlGpuInstance_t gi;

    CHECK_EQUAL(setresuid(65534, 65534, 65534), 0);
    FAILS(nvmlDeviceSetMigMode(gpu_at(0), 1, &status), NVML_ERROR_NO_PERMISSION);
    FAILS(nvmlDeviceCreateGpuInstance(gpu_at(MIG_GPU), 19, &gi), NVML_ERROR_NO_PERMISSION);
    CHECK_EQUAL(remaining(gpu_at(MIG_GPU), 19), 7);
    return 0;
}

static void check_permission(const char *directory) {
    int status;

    if (geteuid() != 0) {
        fputs("another user's attempt: not tried, it needs root\n", stderr);
        return;
    }
    CHECK_EQUAL(chmod(directory, 0755), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        _exit(as_another_user());
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

int main(void) {
    static sim_machine machine;

    for (int hopper = 0; hopper < 2; hopper++) {
        setting_describe(&machine);
        machine.gpus[MIG_GPU].mig = SIM_MIG_ON;
        machine.gpus[0].architecture = hopper ? NVML_DEVICE_ARCH_HOPPER : NVML_DEVICE_ARCH_AMPERE;
        const char *directory = setting_make(&machine);
        OK(nvmlInit_v2());
        check_mode(hopper);
        check_profiles(gpu_at(MIG_GPU));
        make_folders(directory);
        check_files(gpu_at(MIG_GPU));
        check_placement(gpu_at(MIG_GPU));
        check_devices(gpu_at(MIG_GPU));
        check_load(gpu_at(MIG_GPU));
        check_permission(directory);
        OK(nvmlShutdown());
    }
    return 0;
}
