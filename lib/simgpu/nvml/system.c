/* NVML: functions about the driver and the machine, not about a device. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "simgpu/nvml/call.h"

/* The texts of the NVML API reference's nvmlReturn_t, which programs compare. */
static const char *const results[] = {
    [NVML_SUCCESS] = "Success",
    [NVML_ERROR_UNINITIALIZED] = "Uninitialized",
    [NVML_ERROR_INVALID_ARGUMENT] = "Invalid Argument",
    [NVML_ERROR_NOT_SUPPORTED] = "Not Supported",
    [NVML_ERROR_NO_PERMISSION] = "Insufficient Permissions",
    [NVML_ERROR_ALREADY_INITIALIZED] = "Already Initialized",
    [NVML_ERROR_NOT_FOUND] = "Not Found",
    [NVML_ERROR_INSUFFICIENT_SIZE] = "Insufficient Size",
    [NVML_ERROR_INSUFFICIENT_POWER] = "Insufficient External Power",
    [NVML_ERROR_DRIVER_NOT_LOADED] = "Driver Not Loaded",
    [NVML_ERROR_TIMEOUT] = "Timeout",
    [NVML_ERROR_IRQ_ISSUE] = "Interrupt Request Issue",
    [NVML_ERROR_LIBRARY_NOT_FOUND] = "NVML Shared Library Not Found",
    [NVML_ERROR_FUNCTION_NOT_FOUND] = "Function Not Found",
    [NVML_ERROR_CORRUPTED_INFOROM] = "Corrupted infoROM",
    [NVML_ERROR_GPU_IS_LOST] = "GPU is lost",
    [NVML_ERROR_RESET_REQUIRED] = "GPU requires restart",
    [NVML_ERROR_OPERATING_SYSTEM] = "The operating system has blocked the request",
    [NVML_ERROR_LIB_RM_VERSION_MISMATCH] = "RM has detected an NVML/RM version mismatch",
    [NVML_ERROR_IN_USE] = "In use by another client",
    [NVML_ERROR_MEMORY] = "Insufficient Memory",
    [NVML_ERROR_NO_DATA] = "No data",
    [NVML_ERROR_VGPU_ECC_NOT_SUPPORTED] = "vGPU ECC not supported",
    [NVML_ERROR_INSUFFICIENT_RESOURCES] = "Insufficient Resources",
    [NVML_ERROR_FREQ_NOT_SUPPORTED] = "Frequency not supported",
    [NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = "Argument version mismatch",
    [NVML_ERROR_DEPRECATED] = "Deprecated",
    [NVML_ERROR_NOT_READY] = "Not ready",
    [NVML_ERROR_GPU_NOT_FOUND] = "GPU not found",
    [NVML_ERROR_INVALID_STATE] = "Invalid state",
    [NVML_ERROR_RESET_TYPE_NOT_SUPPORTED] = "Reset type not supported",
};

const char *nvmlErrorString(nvmlReturn_t result) {
    size_t place = (size_t)result;

    if (place < sizeof results / sizeof results[0] && results[place]) {
        return results[place];
    }
    return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    NVML_SYSTEM(call)
    return nvml_text(version, length, call.machine->driver_version);
}

/* NVML's own version is the driver's with CUDA's major number before it. */
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    char text[NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE + 12];

    NVML_SYSTEM(call)
    snprintf(text, sizeof text, "%u.%s", call.machine->cuda_version / 1000,
             call.machine->driver_version);
    return nvml_text(version, length, text);
}

/* Works before nvmlInit with the real library; needs an instance here. */
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    NVML_SYSTEM(call)
    NVML_REQUIRE(version);
    *version = (int)call.machine->cuda_version;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return nvmlSystemGetCudaDriverVersion(version);
}

/* The first words of the process's command line, as far as there is room. */
nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
    char path[32];
    char line[1024];

    NVML_SYSTEM(call)
    NVML_REQUIRE(name && length > 0);
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NVML_ERROR_NOT_FOUND;
    }
    ssize_t got = read(fd, line, sizeof line - 1);
    close(fd);
    if (got <= 0) {
        return NVML_ERROR_NOT_FOUND;
    }
    line[got] = '\0'; /* what follows the first zero byte are arguments */
    snprintf(name, length, "%s", line);
    return NVML_SUCCESS;
}

/* No S-class units, host interface cards or excluded devices. */
static nvmlReturn_t none(unsigned int *count) {
    NVML_SYSTEM(call)
    NVML_REQUIRE(count);
    *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlUnitGetCount(unsigned int *count) {
    return none(count);
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *count) {
    return none(count);
}

nvmlReturn_t nvmlSystemGetHicVersion(unsigned int *count, nvmlHwbcEntry_t *entries) {
    (void)entries;
    return none(count);
}
