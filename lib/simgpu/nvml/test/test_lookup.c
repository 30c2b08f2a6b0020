/* Which devices NVML shows, how they are found, its counted initialisation, and modes. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi/generated/nvml_functions.h"
#include "simgpu/machine/test/setting.h"

#define UUID_1 "GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1"

static void check_initialisation(void) {
    char version[NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE];
    nvmlEventData_t event;
    unsigned int count;

    CHECK_EQUAL(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
    CHECK_EQUAL(nvmlEventSetWait_v2(NULL, &event, 0), NVML_ERROR_UNINITIALIZED);
    CHECK_EQUAL(nvmlDeviceGetBridgeChipInfo(NULL, NULL), NVML_ERROR_UNINITIALIZED);
    CHECK_EQUAL(nvmlSystemGetNVMLVersion(NULL, 0), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlSystemGetNVMLVersion(version, sizeof version), NVML_SUCCESS);
    CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
    CHECK_EQUAL(nvmlInitWithFlags(4), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
    CHECK_EQUAL(nvmlInit(), NVML_SUCCESS);
    CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
    CHECK_EQUAL(nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
    CHECK_EQUAL(count, GPU_COUNT);
    CHECK_EQUAL(nvmlDeviceGetCount_v2(NULL), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
    CHECK_EQUAL(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
}

/* NVML shows everything, whatever a program of CUDA is to see. */
static void check_order(void) {
    nvmlDevice_t device;
    nvmlPciInfo_t pci;
    unsigned int index, count;

    setenv("CUDA_VISIBLE_DEVICES", "2", 1);
    CHECK_EQUAL(nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
    CHECK_EQUAL(count, GPU_COUNT);
    unsigned int last_bus = 0;
    for (unsigned int i = 0; i < count; i++) {
        CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(i, &device), NVML_SUCCESS);
        CHECK_EQUAL(nvmlDeviceGetIndex(device, &index), NVML_SUCCESS);
        CHECK_EQUAL(index, i);
        CHECK_EQUAL(nvmlDeviceGetPciInfo_v3(device, &pci), NVML_SUCCESS);
        CHECK(pci.bus > last_bus);
        last_bus = pci.bus;
    }
    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(count, &device), NVML_ERROR_INVALID_ARGUMENT);
    unsetenv("CUDA_VISIBLE_DEVICES");
}

static void check_handles(void) {
    static const char *const addresses[] = {"00000000:12:00.0", "0000:12:00.0", "12:00.0", "12:00"};
    nvmlDevice_t first, device;
    char text[NVML_DEVICE_UUID_BUFFER_SIZE];

    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(1, &first), NVML_SUCCESS);
    CHECK_EQUAL(nvmlDeviceGetUUID(first, text, sizeof text), NVML_SUCCESS);
    CHECK(strcmp(text, UUID_1) == 0);
    CHECK_EQUAL(nvmlDeviceGetUUID(first, text, 40), NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK_EQUAL(nvmlDeviceGetHandleByUUID(UUID_1, &device), NVML_SUCCESS);
    CHECK(device == first);
    CHECK_EQUAL(nvmlDeviceGetHandleByUUID("GPU-a1a1a1a1", &device), NVML_ERROR_NOT_FOUND);
    CHECK_EQUAL(nvmlDeviceGetHandleBySerial("serial-1", &device), NVML_SUCCESS);
    CHECK(device == first);
    CHECK_EQUAL(nvmlDeviceGetHandleBySerial("serial", &device), NVML_ERROR_NOT_FOUND);
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        device = NULL;
        CHECK_EQUAL(nvmlDeviceGetHandleByPciBusId_v2(addresses[i], &device), NVML_SUCCESS);
        CHECK(device == first);
    }
    CHECK_EQUAL(nvmlDeviceGetHandleByPciBusId_v2("0000:13:00.0", &device), NVML_ERROR_NOT_FOUND);
    CHECK_EQUAL(nvmlDeviceGetHandleByPciBusId_v2("twelve", &device), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetHandleByPciBusId_v2("12:00.0x", &device), NVML_ERROR_INVALID_ARGUMENT);
}

static void check_uuid_structure(void) {
    nvmlUUID_t uuid = {.version = NVML_STRUCT_VERSION(nvmlUUID_t, 1),
                       .type = NVML_UUID_TYPE_BINARY};
    nvmlDevice_t first, device;

    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(1, &first), NVML_SUCCESS);
    memset(uuid.value.bytes, 0xa1, sizeof uuid.value.bytes);
    CHECK_EQUAL(nvmlDeviceGetHandleByUUIDV(&uuid, &device), NVML_SUCCESS);
    CHECK(device == first);
    uuid.type = NVML_UUID_TYPE_ASCII;
    memcpy(uuid.value.str, UUID_1, sizeof UUID_1);
    CHECK_EQUAL(nvmlDeviceGetHandleByUUIDV(&uuid, &device), NVML_SUCCESS);
    CHECK(device == first);
    uuid.version = 1;
    CHECK_EQUAL(nvmlDeviceGetHandleByUUIDV(&uuid, &device), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
}

static void check_foreign_handles(void) {
    char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
    int something;

    CHECK_EQUAL(nvmlDeviceGetName(NULL, name, sizeof name), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetName((nvmlDevice_t)(void *)&something, name, sizeof name),
                NVML_ERROR_INVALID_ARGUMENT);
}

/* The older form of the PCI entry writes its own, smaller structure and nothing behind it. */
static void check_pci_forms(void) {
    nvmlDevice_t device;
    nvmlPciInfo_t info;
    nvmlPciInfo_v2_t old;
    nvmlPciInfoExt_t extended = {.version = NVML_STRUCT_VERSION(nvmlPciInfoExt_t, 1)};

    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(3, &device), NVML_SUCCESS);
    CHECK_EQUAL(nvmlDeviceGetPciInfo_v3(device, &info), NVML_SUCCESS);
    CHECK(strcmp(info.busId, "00000000:81:00.0") == 0);
    CHECK(strcmp(info.busIdLegacy, "0000:81:00.0") == 0);
    CHECK_EQUAL(info.pciDeviceId, 0x20b510de);
    memset(&info, 0x5a, sizeof info);
    CHECK_EQUAL(nvmlDeviceGetPciInfo(device, &info), NVML_SUCCESS);
    memcpy(&old, &info, sizeof old);
    CHECK(strcmp(old.busId, "0000:81:00.0") == 0);
    CHECK_EQUAL(old.bus, 0x81);
    for (size_t i = sizeof old; i < sizeof info; i++) {
        CHECK_EQUAL(((unsigned char *)&info)[i], 0x5a);
    }
    CHECK_EQUAL(nvmlDeviceGetPciInfoExt(device, &extended), NVML_SUCCESS);
    CHECK_EQUAL(extended.baseClass, 3);
}

static void check_system(void) {
    char text[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
    int version;

    CHECK_EQUAL(nvmlSystemGetDriverVersion(text, sizeof text), NVML_SUCCESS);
    CHECK(strcmp(text, "550.90.07") == 0);
    CHECK_EQUAL(nvmlSystemGetNVMLVersion(text, sizeof text), NVML_SUCCESS);
    CHECK(strcmp(text, "12.550.90.07") == 0);
    CHECK_EQUAL(nvmlSystemGetCudaDriverVersion(&version), NVML_SUCCESS);
    CHECK_EQUAL(version, 12040);
    CHECK(strcmp(nvmlErrorString(NVML_ERROR_NOT_SUPPORTED), "Not Supported") == 0);
    CHECK(strcmp(nvmlErrorString(NVML_ERROR_UNKNOWN), "Unknown Error") == 0);
    /* Newer than the machine's driver. */
    CHECK(strcmp(nvmlErrorString(NVML_ERROR_RESET_TYPE_NOT_SUPPORTED), "Unknown Error") == 0);
    CHECK(strcmp(nvmlErrorString((nvmlReturn_t)12345), "Unknown Error") == 0);
}

/* The last GPU is in MIG mode. */
static void check_mig_mode(void) {
    nvmlUtilization_t rates;
    nvmlDevice_t device, instance;
    unsigned int current, pending;

    for (unsigned int i = 0; i < GPU_COUNT; i++) {
        bool on = i == GPU_COUNT - 1;
        CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(i, &device), NVML_SUCCESS);
        CHECK_EQUAL(nvmlDeviceGetMigMode(device, &current, &pending), NVML_SUCCESS);
        CHECK_EQUAL(current, on ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE);
        CHECK_EQUAL(pending, current);
        CHECK_EQUAL(nvmlDeviceGetUtilizationRates(device, &rates),
                    on ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS);
        CHECK_EQUAL(nvmlDeviceGetMigDeviceHandleByIndex(device, 0, &instance),
                    NVML_ERROR_NOT_FOUND);
    }
}

static void expect_compute_mode(nvmlDevice_t device, nvmlComputeMode_t want) {
    nvmlComputeMode_t mode;

    CHECK_EQUAL(nvmlDeviceGetComputeMode(device, &mode), NVML_SUCCESS);
    CHECK_EQUAL(mode, want);
}

/* Another user may read the mode of root's machine and not change it. */
static int as_another_user(void) {
    nvmlDevice_t device;

    CHECK_EQUAL(setresuid(65534, 65534, 65534), 0);
    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
    expect_compute_mode(device, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS);
    CHECK_EQUAL(nvmlDeviceSetComputeMode(device, NVML_COMPUTEMODE_DEFAULT),
                NVML_ERROR_NO_PERMISSION);
    expect_compute_mode(device, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS);
    return 0;
}

static void check_compute_modes(const char *directory) {
    nvmlDevice_t device, other, mig;
    int status;

    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(1, &other), NVML_SUCCESS);
    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(GPU_COUNT - 1, &mig), NVML_SUCCESS);
    expect_compute_mode(device, NVML_COMPUTEMODE_DEFAULT);
    CHECK_EQUAL(nvmlDeviceSetComputeMode(device, NVML_COMPUTEMODE_PROHIBITED), NVML_SUCCESS);
    expect_compute_mode(device, NVML_COMPUTEMODE_PROHIBITED);
    CHECK_EQUAL(nvmlDeviceSetComputeMode(device, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS), NVML_SUCCESS);
    expect_compute_mode(device, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS);
    expect_compute_mode(other, NVML_COMPUTEMODE_DEFAULT);
    CHECK_EQUAL(nvmlDeviceSetComputeMode(device, NVML_COMPUTEMODE_EXCLUSIVE_THREAD),
                NVML_ERROR_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceSetComputeMode(device, (nvmlComputeMode_t)4),
                NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceSetComputeMode(mig, NVML_COMPUTEMODE_PROHIBITED),
                NVML_ERROR_NOT_SUPPORTED);
    expect_compute_mode(mig, NVML_COMPUTEMODE_DEFAULT);
    if (geteuid() == 0) {
        CHECK_EQUAL(chmod(directory, 0755), 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            _exit(as_another_user());
        }
        CHECK_EQUAL(waitpid(child, &status, 0), child);
        CHECK_EQUAL(status, 0);
    } else {
        printf("not checked as another user: that needs root\n");
    }
    CHECK_EQUAL(nvmlDeviceSetComputeMode(device, NVML_COMPUTEMODE_DEFAULT), NVML_SUCCESS);
    expect_compute_mode(device, NVML_COMPUTEMODE_DEFAULT);
}

int main(void) {
    sim_machine machine;

    CHECK_EQUAL(nvmlInit_v2(), NVML_ERROR_DRIVER_NOT_LOADED);
    setting_describe(&machine);
    machine.gpus[GPU_COUNT - 1].mig = SIM_MIG_ON;
    const char *directory = setting_make(&machine);
    check_initialisation();
    CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
    check_order();
    check_handles();
    check_uuid_structure();
    check_foreign_handles();
    check_pci_forms();
    check_system();
    check_mig_mode();
    check_compute_modes(directory);
    CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
    return 0;
}
