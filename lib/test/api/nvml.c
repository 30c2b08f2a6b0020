/* NVML, which must agree with CUDA about the devices. */
#include "test/api/api.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The place of NVML's device for one of CUDA's. */
static nvmlDevice_t partner(CUdevice device) {
    char bus[32] = "";
    nvmlDevice_t found = NULL;

    OK(cuDeviceGetPCIBusId, bus, sizeof bus, device);
    ML_OK(nvmlDeviceGetHandleByPciBusId_v2, bus, &found);
    return found;
}

static void check_identity(CUdevice device, nvmlDevice_t d) {
    char name[256] = "", other[256] = "", uuid[96] = "", want[48] = "GPU-";
    unsigned index = 77, again = 77;
    nvmlDevice_t same = NULL;
    nvmlPciInfo_t pci;
    CUuuid id;
    int bus = 0, major = 0, minor = 0, cuda_major = 0, cuda_minor = 0;

    ML_OK(nvmlDeviceGetName, d, name, sizeof name);
    OK(cuDeviceGetName, other, sizeof other, device);
    TRUE(strcmp(name, other) == 0);
    OK(cuDeviceGetUuid_v2, &id, device);
    for (unsigned i = 0; i < 16; i++) {
        sprintf(want + strlen(want), "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                (unsigned char)id.bytes[i]);
    }
    ML_OK(nvmlDeviceGetUUID, d, uuid, sizeof uuid);
    TRUE(strcmp(uuid, want) == 0);
    ML_OK(nvmlDeviceGetHandleByUUID, uuid, &same);
    ML_OK(nvmlDeviceGetIndex, same, &index);
    ML_OK(nvmlDeviceGetIndex, d, &again);
    SAME(index, again);
    ML_OK(nvmlDeviceGetHandleByIndex_v2, index, &same);
    ML_OK(nvmlDeviceGetUUID, same, other, sizeof other);
    TRUE(strcmp(uuid, other) == 0);
    ML_OK(nvmlDeviceGetPciInfo_v3, d, &pci);
    OK(cuDeviceGetAttribute, &bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device);
    SAME(pci.bus, bus);
    OK(cuDeviceGetAttribute, &bus, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, device);
    SAME(pci.device, bus);
    ML_OK(nvmlDeviceGetCudaComputeCapability, d, &major, &minor);
    OK(cuDeviceComputeCapability, &cuda_major, &cuda_minor, device);
    SAME(major, cuda_major);
    SAME(minor, cuda_minor);
    ML_ANSWERS(NVML_ERROR_INSUFFICIENT_SIZE, nvmlDeviceGetUUID, d, uuid, 4);
    ML_ANSWERS(NVML_ERROR_INSUFFICIENT_SIZE, nvmlDeviceGetName, d, name, 2);
    ML_ANSWERS(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetName, d, NULL, 100);
    ML_ANSWERS(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetUUID, d, NULL, 100);
}

static void check_memory(CUdevice device, nvmlDevice_t d) {
    nvmlMemory_t memory = {0};
    nvmlMemory_v2_t more = {.version = sizeof more | 2u << 24};
    nvmlBAR1Memory_t bar = {0};
    size_t total = 0;

    OK(cuDeviceTotalMem_v2, &total, device);
    ML_OK(nvmlDeviceGetMemoryInfo, d, &memory);
    TRUE(memory.total >= total);
    SAME(memory.free + memory.used, memory.total);
    ML_OK(nvmlDeviceGetMemoryInfo_v2, d, &more);
    SAME(more.total, memory.total);
    SAME(more.free + more.used + more.reserved, more.total);
    ML_OK(nvmlDeviceGetBAR1MemoryInfo, d, &bar);
    SAME(bar.bar1Free + bar.bar1Used, bar.bar1Total);
    ML_ANSWERS(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetMemoryInfo, d, NULL);
}

static void check_figures(nvmlDevice_t d) {
    nvmlUtilization_t use = {777, 777};
    unsigned value = 0, limit = 0;

    ML_OK(nvmlDeviceGetUtilizationRates, d, &use);
    TRUE(use.gpu <= 100 && use.memory <= 100);
    ML_OK(nvmlDeviceGetTemperature, d, NVML_TEMPERATURE_GPU, &value);
    TRUE(value > 0 && value < 130);
    ML_OK(nvmlDeviceGetPowerUsage, d, &value);
    ML_OK(nvmlDeviceGetPowerManagementLimit, d, &limit);
    TRUE(value > 0 && limit > 0);
    ML_OK(nvmlDeviceGetClockInfo, d, NVML_CLOCK_SM, &value);
    ML_OK(nvmlDeviceGetMaxClockInfo, d, NVML_CLOCK_SM, &limit);
    TRUE(value <= limit && limit > 0);
    ML_OK(nvmlDeviceGetMaxPcieLinkGeneration, d, &value);
    TRUE(value > 0);
    ML_OK(nvmlDeviceGetMaxPcieLinkWidth, d, &value);
    TRUE(value > 0 && value <= 32);
    ML_OK(nvmlDeviceGetMinorNumber, d, &value);
    ML_ANSWERS(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetUtilizationRates, d, NULL);
    ML_ANSWERS(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetTemperature, d,
               (nvmlTemperatureSensors_t)99, &value);
}

/* What is allocated through CUDA is seen through NVML. */
static void check_use(nvmlDevice_t d) {
    nvmlMemory_t before = {0}, after = {0};
    CUdeviceptr p = 0;
    CUcontext ctx = NULL;

    OK(cuCtxCreate_v2, &ctx, 0, 0);
    ML_OK(nvmlDeviceGetMemoryInfo, d, &before);
    OK(cuMemAlloc_v2, &p, 32 * MIB);
    ML_OK(nvmlDeviceGetMemoryInfo, d, &after);
    SAME(after.used - before.used, 32 * MIB);
    OK(cuMemFree_v2, p);
    ML_OK(nvmlDeviceGetMemoryInfo, d, &after);
    SAME(after.used, before.used);
    unsigned count = 0;
    ML_ANSWERS(NVML_ERROR_INSUFFICIENT_SIZE, nvmlDeviceGetComputeRunningProcesses_v3, d, &count,
               NULL);
    TRUE(count > 0);
    nvmlProcessInfo_t all[64];
    count = 64;
    ML_OK(nvmlDeviceGetComputeRunningProcesses_v3, d, &count, all);
    TRUE(count > 0 && count <= 64);
    OK(cuCtxDestroy_v2, ctx);
}

void api_case_nvml(void) {
    unsigned count = 0;
    int devices = 0, version = 0, cuda = 0;
    char text[96] = "";

    if (!api_has_nvml()) {
        return;
    }
    OK(cuInit, 0);
    ML_OK(nvmlInit_v2);
    ML_OK(nvmlDeviceGetCount_v2, &count);
    OK(cuDeviceGetCount, &devices);
    TRUE(count >= (unsigned)devices);
    ML_OK(nvmlSystemGetCudaDriverVersion_v2, &version);
    OK(cuDriverGetVersion, &cuda);
    SAME(version, cuda);
    ML_OK(nvmlSystemGetDriverVersion, text, sizeof text);
    TRUE(text[0] >= '4' && strchr(text, '.'));
    ML_OK(nvmlSystemGetNVMLVersion, text, sizeof text);
    TRUE(text[0] && strchr(text, '.'));
    for (int i = 0; i < devices; i++) {
        nvmlDevice_t d = partner(i);
        check_identity(i, d);
        check_memory(i, d);
        check_figures(d);
    }
    check_use(partner(0));
    ML_OK(nvmlShutdown);
}

void api_case_nvml_errors(void) {
    static const nvmlReturn_t known[] = {NVML_SUCCESS,
                                         NVML_ERROR_UNINITIALIZED,
                                         NVML_ERROR_INVALID_ARGUMENT,
                                         NVML_ERROR_NOT_SUPPORTED,
                                         NVML_ERROR_NO_PERMISSION,
                                         NVML_ERROR_NOT_FOUND,
                                         NVML_ERROR_INSUFFICIENT_SIZE,
                                         NVML_ERROR_DRIVER_NOT_LOADED,
                                         NVML_ERROR_TIMEOUT,
                                         NVML_ERROR_GPU_IS_LOST,
                                         NVML_ERROR_OPERATING_SYSTEM,
                                         NVML_ERROR_UNKNOWN};
    nvmlDevice_t d = NULL;
    unsigned count = 77;
    char text[96];

    if (!api_has_nvml()) {
        return;
    }
    for (size_t i = 0; i < COUNT(known); i++) {
        const char *told = ML(nvmlErrorString)(known[i]);
        TRUE(told && told[0]);
    }
    ML_ANSWERS(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount_v2, &count);
    ML_ANSWERS(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetHandleByIndex_v2, 0, &d);
    /* Documented is an error; drivers answer success. */
    nvmlReturn_t ended = ML(nvmlShutdown)();
    TRUE(ended == NVML_ERROR_UNINITIALIZED || ended == NVML_SUCCESS);
    SAME(count, 77);
    ML_OK(nvmlInit_v2);
    ML_OK(nvmlInit_v2);
    ML_OK(nvmlDeviceGetCount_v2, &count);
    ML_OK(nvmlShutdown);
    ML_OK(nvmlDeviceGetCount_v2, &count);
    ML_ANSWERS(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetCount_v2, NULL);
    ML_ANSWERS(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex_v2, count, &d);
    ML_ANSWERS(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex_v2, 0, NULL);
    ML_ANSWERS(NVML_ERROR_NOT_FOUND, nvmlDeviceGetHandleByUUID,
               "GPU-00000000-0000-0000-0000-000000000001", &d);
    ML_ANSWERS(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetHandleByUUID, NULL, &d);
    ML_ANSWERS(NVML_ERROR_NOT_FOUND, nvmlDeviceGetHandleByPciBusId_v2, "0000:fe:1f.0", &d);
    ML_ANSWERS(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetName, NULL, text, sizeof text);
    ML_ANSWERS(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetMemoryInfo, NULL, NULL);
    ML_ANSWERS(NVML_ERROR_INSUFFICIENT_SIZE, nvmlSystemGetDriverVersion, text, 2);
    ML_OK(nvmlShutdown);
    ML_ANSWERS(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount_v2, &count);
}
