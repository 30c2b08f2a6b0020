/* An NVML that reports what the test says of its process, for the tests of overhead. */
#include "cuda/test/nvml.h"

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

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t gpu, unsigned int *count,
                                                     nvmlProcessInfo_t *list) {
    (void)gpu;
    fake_nvml.questions++;
    if (*count < 2) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    memset(list, 0, 2 * sizeof *list);
    list[0] = (nvmlProcessInfo_t){.pid = 1, .usedGpuMemory = 1 << 20};
    list[1] = (nvmlProcessInfo_t){.pid = fake_nvml.hidden ? 2 : (unsigned)getpid(),
                                  .usedGpuMemory = fake_nvml.held};
    *count = 2;
    return NVML_SUCCESS;
}
