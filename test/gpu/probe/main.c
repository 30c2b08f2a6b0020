#include "probe.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct cuda cuda;
struct nvml nvml;

static const struct {
    const char *name;
    int (*run)(void);
    const char *help;
} commands[] = {
    {"machine", command_machine, "the GPUs and the processes on them, by NVML"},
    {"keep", command_keep, "keeps the driver loaded until its input ends"},
    {"processes", command_processes, "whether NVML lists this process, and with how much memory"},
    {"cost", command_cost, "processor time of NVML's calls"},
    {"late", command_late, "memory that appears when code is loaded and kernels are launched"},
    {"code", command_code, "the code that `late` loads, as text and not as JSON; needs no driver"},
    {"order", command_order, "which streams wait for the legacy stream"},
    {"ended", command_ended, "what the driver says to handles of streams that have ended"},
    {"exports", command_exports, "how descriptors of exported memory can be told apart"},
    {"aliases", command_aliases, "functions of the driver that answer to several names"},
    {"managed", command_managed, "how managed memory comes to the GPU and leaves it"},
    {"checkpoint", command_checkpoint, "who can take a process off its GPU, and what waits then"},
    {"mig", command_mig, "which profiles of MIG instances the GPUs have, and which instances"},
    {"divide", command_divide, "makes a MIG instance on each simulated GPU in MIG mode"},
    {"sms", command_sms, "how many multiprocessors the first device has for this process"},
};

/* POSIX gives function pointers through void *; the copy spells that conversion without a cast. */
static bool resolve(void *library, const char *name, void *into) {
    void *symbol = dlsym(library, name);
    memcpy(into, &symbol, sizeof symbol);
    return symbol != NULL;
}

bool open_cuda(void) {
    cuda.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (cuda.library == NULL) {
        fprintf(stderr, "gpuprobe: open the CUDA driver: %s\n", dlerror());
        return false;
    }
#define PROBE_RESOLVE(name, parameters) (void)resolve(cuda.library, #name, &cuda.name);
    PROBE_CUDA(PROBE_RESOLVE)
#undef PROBE_RESOLVE
    return cuda.cuInit != NULL && cuda.cuDriverGetVersion != NULL && cuda.cuGetErrorName != NULL &&
           cuda.cuDeviceGet != NULL && cuda.cuDeviceGetUuid != NULL &&
           cuda.cuDevicePrimaryCtxRetain != NULL && cuda.cuCtxSetCurrent != NULL;
}

bool open_nvml(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "gpuprobe: open NVML: %s\n", dlerror());
        return false;
    }
#define PROBE_RESOLVE(name, parameters) (void)resolve(library, #name, &nvml.name);
    PROBE_NVML(PROBE_RESOLVE)
#undef PROBE_RESOLVE
    return nvml.nvmlInit_v2 != NULL && nvml.nvmlShutdown != NULL &&
           nvml.nvmlDeviceGetCount_v2 != NULL && nvml.nvmlDeviceGetHandleByIndex_v2 != NULL &&
           nvml.nvmlDeviceGetHandleByUUID != NULL && nvml.nvmlDeviceGetUUID != NULL &&
           nvml.nvmlDeviceGetMemoryInfo != NULL;
}

CUresult start_cuda(CUdevice *device) {
    CUcontext context = NULL;
    CUresult result = cuda.cuInit(0);
    if (result == CUDA_SUCCESS) {
        result = cuda.cuDeviceGet(device, 0);
    }
    if (result == CUDA_SUCCESS) {
        result = cuda.cuDevicePrimaryCtxRetain(&context, *device);
    }
    return result == CUDA_SUCCESS ? cuda.cuCtxSetCurrent(context) : result;
}

const char *result_name(CUresult result) {
    const char *name = NULL;
    if (cuda.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL) {
        return "CUDA_ERROR_UNKNOWN";
    }
    return name;
}

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void await_end_of_input(void) {
    char byte;
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
}

int main(int argc, char **argv) {
    for (size_t i = 0; argc == 2 && i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return commands[i].run();
        }
    }
    fputs("usage: gpuprobe COMMAND\n\ncommands:\n", stderr);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        fprintf(stderr, "  %-10s %s\n", commands[i].name, commands[i].help);
    }
    return 2;
}
