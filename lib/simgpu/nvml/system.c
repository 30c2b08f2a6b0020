/* NVML: functions about the driver and the machine, not about a device. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "simgpu/nvml/call.h"

/* The answers of nvmlErrorString of NVIDIA's drivers 470, 535, 550 and 555, which test/drivers compares, and the
 * version of CUDA with which a text came (0: before 11.4). The last is newer than these. */
static const struct {
    uint32_t since;
    const char *text;
} results[] = {
    [NVML_SUCCESS] = {0, "Success"},
    [NVML_ERROR_UNINITIALIZED] = {0, "Uninitialized"},
    [NVML_ERROR_INVALID_ARGUMENT] = {0, "Invalid Argument"},
    [NVML_ERROR_NOT_SUPPORTED] = {0, "Not Supported"},
    [NVML_ERROR_NO_PERMISSION] = {0, "Insufficient Permissions"},
    [NVML_ERROR_ALREADY_INITIALIZED] = {0, "Already Initialized"},
    [NVML_ERROR_NOT_FOUND] = {0, "Not Found"},
    [NVML_ERROR_INSUFFICIENT_SIZE] = {0, "Insufficient Size"},
    [NVML_ERROR_INSUFFICIENT_POWER] = {0, "Insufficient External Power"},
    [NVML_ERROR_DRIVER_NOT_LOADED] = {0, "Driver Not Loaded"},
    [NVML_ERROR_TIMEOUT] = {0, "Timeout"},
    [NVML_ERROR_IRQ_ISSUE] = {0, "Interrupt Request Issue"},
    [NVML_ERROR_LIBRARY_NOT_FOUND] = {0, "NVML Shared Library Not Found"},
    [NVML_ERROR_FUNCTION_NOT_FOUND] = {0, "Function Not Found"},
    [NVML_ERROR_CORRUPTED_INFOROM] = {0, "Corrupted infoROM"},
    [NVML_ERROR_GPU_IS_LOST] = {0, "GPU is lost"},
    [NVML_ERROR_RESET_REQUIRED] = {0, "GPU requires reset"},
    [NVML_ERROR_OPERATING_SYSTEM] = {0, "GPU access blocked by the operating system"},
    [NVML_ERROR_LIB_RM_VERSION_MISMATCH] = {0, "Driver/library version mismatch"},
    [NVML_ERROR_IN_USE] = {0, "In use by another client"},
    [NVML_ERROR_MEMORY] = {0, "Insufficient Memory"},
    [NVML_ERROR_NO_DATA] = {11050, "No data"},
    [NVML_ERROR_VGPU_ECC_NOT_SUPPORTED] = {11050, "vGPU ECC not supported"},
    [NVML_ERROR_INSUFFICIENT_RESOURCES] = {0, "Insufficient Resources"},
    [NVML_ERROR_FREQ_NOT_SUPPORTED] = {0, "Invalid Frequency"},
    [NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = {11080, "Argument version mismatch"},
    [NVML_ERROR_DEPRECATED] = {12000, "Requested functionality has been deprecated"},
    [NVML_ERROR_NOT_READY] = {12020, "System is not in ready state"},
    [NVML_ERROR_GPU_NOT_FOUND] = {12030, "No supported GPUs were found"},
    [NVML_ERROR_INVALID_STATE] = {12040,
                                  "Resource not in correct state to perform requested operation"},
    [NVML_ERROR_RESET_TYPE_NOT_SUPPORTED] = {13000, "Reset type not supported"},
};

/* The version of CUDA that the driver claims, the newest without a machine. */
static uint32_t cuda_version(void) {
    const sim_machine *machine;
    struct sg_instance in;

    if (nvml_visit(&in, &machine) != NVML_SUCCESS) {
        return UINT32_MAX;
    }
    uint32_t version = machine->cuda_version;
    sg_close(&in);
    return version;
}

const char *nvmlErrorString(nvmlReturn_t result) {
    size_t place = (size_t)result;

    if (place < sizeof results / sizeof results[0] && results[place].text &&
        results[place].since <= cuda_version()) {
        return results[place].text;
    }
    return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    NVML_SYSTEM(call)
    return nvml_text(version, length, call.machine->driver_version);
}

/* NVML's own version is the driver's with CUDA's major number before it. Those of CUDA 12 tell it before
 * nvmlInit too. */
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    char text[NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE + 12];
    const sim_machine *machine;
    struct sg_instance in;
    nvmlReturn_t result = nvml_visit(&in, &machine);

    if (result != NVML_SUCCESS) {
        return result;
    }
    if (machine->cuda_version < 12000 && !nvml_in_use()) {
        result = NVML_ERROR_UNINITIALIZED;
    } else {
        snprintf(text, sizeof text, "%u.%s", machine->cuda_version / 1000, machine->driver_version);
        result = nvml_text(version, length, text);
    }
    sg_close(&in);
    return result;
}

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

static bool told;

/* The tables are NVML's private interfaces to NVIDIA's own programs. This is the driver's answer for a table
 * that it does not have; nvidia-smi takes it for another version's driver. */
nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id) {
    NVML_REQUIRE(table && id);
    *table = NULL;
    if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED)) {
        fprintf(stderr,
                "simgpu: this program needs an undocumented interface of NVML, as nvidia-smi does; "
                "it does not run on simgpu\n");
    }
    return NVML_ERROR_INVALID_ARGUMENT;
}
