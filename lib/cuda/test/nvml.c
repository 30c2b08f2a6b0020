/* An NVML that reports what the test says of its process, for the tests of overhead. */
#include "cuda/test/nvml.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "abi/generated/nvml_functions.h"

__attribute__((visibility("default"))) struct fake_nvml fake_nvml = {.held = UINT64_MAX};

nvmlReturn_t nvmlInit_v2(void) {
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle) {
    *handle = (nvmlDevice_t)&fake_nvml;
    fake_nvml.questions++;
    return strcmp(uuid, "GPU-01010101-0101-0101-0101-010101010101") == 0 ? NVML_SUCCESS
                                                                         : NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t show(unsigned int *count, nvmlProcessInfo_t *list, bool self) {
    fake_nvml.questions++;
    if (*count < 2) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    memset(list, 0, 2 * sizeof *list);
    list[0] = (nvmlProcessInfo_t){.pid = 1, .usedGpuMemory = 1 << 20};
    list[1] = (nvmlProcessInfo_t){.pid = self && !fake_nvml.hidden ? (unsigned)getpid() : 2,
                                  .usedGpuMemory = fake_nvml.held};
    *count = 2;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t gpu, unsigned int *count,
                                                     nvmlProcessInfo_t *list) {
    (void)gpu;
    return show(count, list, !fake_nvml.client);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t gpu, unsigned int *count,
                                                        nvmlProcessInfo_t *list) {
    (void)gpu;
    return show(count, list, fake_nvml.client);
}
