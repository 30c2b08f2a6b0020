/* The commands that ask NVML: machine, processes and cost. */
#define _GNU_SOURCE
#include "probe.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT = 96, MIB = 1 << 20, NONE = -1 };

nvmlReturn_t running(nvmlDevice_t gpu, unsigned *count, nvmlProcessInfo_t *list) {
    *count = PROCESSES_MAX;
    nvmlReturn_t result = NVML_ERROR_FUNCTION_NOT_FOUND;
    if (nvml.nvmlDeviceGetComputeRunningProcesses_v3 != NULL) {
        result = nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu, count, list);
    } else if (nvml.nvmlDeviceGetComputeRunningProcesses_v2 != NULL) {
        result = nvml.nvmlDeviceGetComputeRunningProcesses_v2(gpu, count, list);
    }
    if (result != NVML_SUCCESS) {
        *count = 0;
    }
    return result;
}

nvmlDevice_t device_in_nvml(CUdevice device) {
    CUuuid uuid;
    char text[TEXT];
    nvmlDevice_t found = NULL;
    if (cuda.cuDeviceGetUuid(&uuid, device) != CUDA_SUCCESS) {
        return NULL;
    }
    size_t length = (size_t)snprintf(text, sizeof text, "GPU-");
    for (unsigned i = 0; i < sizeof uuid.bytes; i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%02x", dash,
                                   (unsigned char)uuid.bytes[i]);
    }
    return nvml.nvmlDeviceGetHandleByUUID(text, &found) == NVML_SUCCESS ? found : NULL;
}

/* Memory of a process in bytes, -1 where the driver does not tell. */
static long long told(const nvmlProcessInfo_t *process) {
    return process->usedGpuMemory == UINT64_MAX ? NONE : (long long)process->usedGpuMemory;
}

static void show_gpu(unsigned index, nvmlDevice_t gpu) {
    char uuid[TEXT] = "", name[TEXT] = "";
    nvmlMemory_t memory = {0};
    nvmlUtilization_t busy = {0};
    int mode = NONE, major = 0, minor = 0;
    unsigned mig = 0, pending = 0, count = 0;
    static nvmlProcessInfo_t list[PROCESSES_MAX];
    nvmlReturn_t uuid_told = nvml.nvmlDeviceGetUUID(gpu, uuid, sizeof uuid);
    nvmlReturn_t memory_told = nvml.nvmlDeviceGetMemoryInfo(gpu, &memory);
    nvmlReturn_t busy_told = NVML_ERROR_FUNCTION_NOT_FOUND;
    if (nvml.nvmlDeviceGetName != NULL) {
        (void)nvml.nvmlDeviceGetName(gpu, name, sizeof name);
    }
    if (nvml.nvmlDeviceGetComputeMode != NULL) {
        (void)nvml.nvmlDeviceGetComputeMode(gpu, &mode);
    }
    if (nvml.nvmlDeviceGetMigMode != NULL) {
        (void)nvml.nvmlDeviceGetMigMode(gpu, &mig, &pending);
    }
    if (nvml.nvmlDeviceGetCudaComputeCapability != NULL) {
        (void)nvml.nvmlDeviceGetCudaComputeCapability(gpu, &major, &minor);
    }
    if (nvml.nvmlDeviceGetUtilizationRates != NULL) {
        busy_told = nvml.nvmlDeviceGetUtilizationRates(gpu, &busy);
    }
    nvmlReturn_t processes_told = running(gpu, &count, list);
    printf("%s{\"index\":%u,\"uuid\":\"%s\",\"name\":\"%s\",\"capability\":\"%d.%d\","
           "\"total\":%llu,\"used\":%llu,\"free\":%llu,\"mode\":%d,\"mig\":%s,\"busy\":%d,"
           "\"code\":%d,\"processes_code\":%d,\"processes\":[",
           index > 0 ? "," : "", index, uuid, name, major, minor, memory.total, memory.used,
           memory.free, mode, mig != 0 ? "true" : "false",
           busy_told == NVML_SUCCESS ? (int)busy.gpu : NONE,
           (int)(uuid_told != NVML_SUCCESS ? uuid_told : memory_told), (int)processes_told);
    for (unsigned i = 0; i < count; i++) {
        printf("%s{\"pid\":%u,\"bytes\":%lld}", i > 0 ? "," : "", list[i].pid, told(&list[i]));
    }
    printf("]}");
}

/* A simulated machine's library lies beside the machine's own file. */
bool simulated(void) {
    Dl_info found;
    char path[PATH_MAX];
    union {
        nvmlReturn_t (*function)(void);
        void *address;
    } init = {.function = nvml.nvmlInit_v2};
    if (dladdr(init.address, &found) == 0 || found.dli_fname == NULL) {
        return false;
    }
    const char *slash = strrchr(found.dli_fname, '/');
    if (slash == NULL) {
        return false;
    }
    int length = snprintf(path, sizeof path, "%.*s/instance.json", (int)(slash - found.dli_fname),
                          found.dli_fname);
    return length > 0 && (size_t)length < sizeof path && access(path, F_OK) == 0;
}

int command_machine(void) {
    char driver[TEXT] = "";
    int version = 0;
    unsigned count = 0;
    if (!open_nvml()) {
        return 3;
    }
    nvmlReturn_t result = nvml.nvmlInit_v2();
    if (result == NVML_SUCCESS && nvml.nvmlSystemGetDriverVersion != NULL) {
        (void)nvml.nvmlSystemGetDriverVersion(driver, sizeof driver);
    }
    if (result == NVML_SUCCESS && nvml.nvmlSystemGetCudaDriverVersion != NULL) {
        (void)nvml.nvmlSystemGetCudaDriverVersion(&version);
    }
    if (result == NVML_SUCCESS) {
        result = nvml.nvmlDeviceGetCount_v2(&count);
    }
    printf("{\"command\":\"machine\",\"simulated\":%s,\"driver\":\"%s\",\"cuda\":%d,\"code\":%d,"
           "\"gpus\":[",
           simulated() ? "true" : "false", driver, version, (int)result);
    for (unsigned i = 0, shown = 0; i < count; i++) {
        nvmlDevice_t gpu;
        if (nvml.nvmlDeviceGetHandleByIndex_v2(i, &gpu) == NVML_SUCCESS) {
            show_gpu(shown++, gpu);
        }
    }
    puts("]}");
    return result == NVML_SUCCESS ? 0 : 1;
}

int command_keep(void) {
    if (!open_nvml()) {
        return 3;
    }
    nvmlReturn_t result = nvml.nvmlInit_v2();
    printf("{\"command\":\"keep\",\"code\":%d}\n", (int)result);
    await_end_of_input();
    return result == NVML_SUCCESS ? 0 : 1;
}

int command_processes(void) {
    CUdevice device = 0;
    CUdeviceptr memory;
    static nvmlProcessInfo_t list[PROCESSES_MAX];
    unsigned count = 0;
    long long own = NONE;
    bool listed = false;
    if (!open_cuda() || !open_nvml()) {
        return 3;
    }
    CUresult result = start_cuda(&device);
    if (result == CUDA_SUCCESS) {
        result = cuda.cuMemAlloc_v2(&memory, 64 * MIB);
    }
    nvmlReturn_t asked = nvml.nvmlInit_v2();
    nvmlDevice_t gpu = asked == NVML_SUCCESS ? device_in_nvml(device) : NULL;
    if (gpu != NULL) {
        asked = running(gpu, &count, list);
    }
    for (unsigned i = 0; i < count; i++) {
        if (list[i].pid == (unsigned)getpid()) {
            listed = true;
            own = told(&list[i]);
        }
    }
    printf("{\"command\":\"processes\",\"result\":\"%s\",\"code\":%d,\"found\":%s,\"listed\":%u,"
           "\"self\":%s,\"bytes\":%lld}\n",
           result_name(result), (int)asked, gpu != NULL ? "true" : "false", count,
           listed ? "true" : "false", own);
    return result == CUDA_SUCCESS ? 0 : 1;
}

static int ascending(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* One question that is timed; `samples` is room for the answers of two of them. */
struct question {
    const char *name;
    nvmlReturn_t (*ask)(nvmlDevice_t gpu);
};

static nvmlReturn_t ask_memory(nvmlDevice_t gpu) {
    nvmlMemory_t memory;
    return nvml.nvmlDeviceGetMemoryInfo(gpu, &memory);
}

static nvmlReturn_t ask_processes(nvmlDevice_t gpu) {
    static nvmlProcessInfo_t list[PROCESSES_MAX];
    unsigned count;
    return running(gpu, &count, list);
}

static nvmlReturn_t ask_utilisation(nvmlDevice_t gpu) {
    nvmlUtilization_t busy;
    return nvml.nvmlDeviceGetUtilizationRates == NULL
               ? NVML_ERROR_FUNCTION_NOT_FOUND
               : nvml.nvmlDeviceGetUtilizationRates(gpu, &busy);
}

/* A GPU without samples answers NVML_ERROR_NOT_FOUND, which takes as long. */
static nvmlReturn_t ask_samples(nvmlDevice_t gpu) {
    static nvmlProcessUtilizationSample_t list[PROCESSES_MAX];
    unsigned count = PROCESSES_MAX;
    if (nvml.nvmlDeviceGetProcessUtilization == NULL) {
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    }
    nvmlReturn_t result = nvml.nvmlDeviceGetProcessUtilization(gpu, list, &count, 0);
    return result == NVML_ERROR_NOT_FOUND ? NVML_SUCCESS : result;
}

static nvmlReturn_t ask_again(nvmlDevice_t gpu) {
    (void)gpu;
    (void)nvml.nvmlShutdown();
    return nvml.nvmlInit_v2();
}

/* Asks until 200 answers or a second are over; prints the median and the slowest in microseconds. */
static void time_question(const struct question *question, nvmlDevice_t gpu) {
    enum { ANSWERS = 200, BUDGET_NS = 1000000000 };
    uint64_t taken[ANSWERS], begin = now_ns();
    unsigned count = 0;
    nvmlReturn_t result = NVML_SUCCESS;
    while (count < ANSWERS && result == NVML_SUCCESS && now_ns() - begin < BUDGET_NS) {
        uint64_t asked = now_ns();
        result = question->ask(gpu);
        taken[count++] = now_ns() - asked;
    }
    qsort(taken, count, sizeof taken[0], ascending);
    uint64_t median = taken[count / 2], slowest = taken[count - 1];
    printf(",\"%s\":{\"code\":%d,\"answers\":%u,\"median_us\":%.1f,\"slowest_us\":%.1f}",
           question->name, (int)result, count, (double)median / 1e3, (double)slowest / 1e3);
}

int command_cost(void) {
    static const struct question questions[] = {
        {"memory", ask_memory},   {"processes", ask_processes}, {"utilisation", ask_utilisation},
        {"samples", ask_samples}, {"init_again", ask_again},
    };
    CUdevice device = 0;
    if (!open_cuda() || !open_nvml()) {
        return 3;
    }
    uint64_t begin = now_ns();
    nvmlReturn_t asked = nvml.nvmlInit_v2();
    uint64_t init = now_ns() - begin;
    CUresult result = asked == NVML_SUCCESS ? start_cuda(&device) : CUDA_ERROR_NOT_INITIALIZED;
    nvmlDevice_t gpu = result == CUDA_SUCCESS ? device_in_nvml(device) : NULL;
    printf("{\"command\":\"cost\",\"result\":\"%s\",\"code\":%d,\"init_ms\":%.3f",
           result_name(result), (int)asked, (double)init / 1e6);
    for (size_t i = 0; gpu != NULL && i < sizeof questions / sizeof questions[0]; i++) {
        time_question(&questions[i], gpu);
    }
    puts("}");
    return gpu != NULL ? 0 : 1;
}
