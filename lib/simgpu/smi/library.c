#define _GNU_SOURCE
#include "simgpu/smi/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct smi_library library;

/* Where the loader finds it, else beside this program. */
static void *open_library(void) {
    char path[PATH_MAX + 32];
    void *found = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    ssize_t length = found ? 0 : readlink("/proc/self/exe", path, PATH_MAX);

    if (found || length <= 0) {
        return found;
    }
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, "libnvidia-ml.so.1");
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static bool find(void *from, const char *name, void *function) {
    *(void **)function = dlsym(from, name); /* POSIX allows it, ISO C has no cast for it */
    return *(void **)function != NULL;
}

static bool find_all(void *from) {
    return find(from, "nvmlInit_v2", &library.init) &&
           find(from, "nvmlShutdown", &library.shutdown) &&
           find(from, "nvmlDeviceGetPciInfo_v3", &library.pci) &&
           find(from, "nvmlDeviceSetMigMode", &library.set_mode) &&
           find(from, "nvmlDeviceGetCount_v2", &library.count) &&
           find(from, "nvmlDeviceGetHandleByIndex_v2", &library.by_index) &&
           find(from, "nvmlDeviceGetName", &library.name) &&
           find(from, "nvmlDeviceGetUUID", &library.uuid) &&
           find(from, "nvmlDeviceGetMemoryInfo", &library.memory) &&
           find(from, "nvmlDeviceGetUtilizationRates", &library.busy) &&
           find(from, "nvmlDeviceGetTemperature", &library.celsius) &&
           find(from, "nvmlDeviceGetPowerUsage", &library.milliwatts) &&
           find(from, "nvmlSystemGetDriverVersion", &library.driver) &&
           find(from, "nvmlSystemGetCudaDriverVersion", &library.cuda) &&
           find(from, "nvmlDeviceGetMigMode", &library.mode) &&
           find(from, "nvmlDeviceGetMaxMigDeviceCount", &library.most) &&
           find(from, "nvmlDeviceGetMigDeviceHandleByIndex", &library.mig) &&
           find(from, "nvmlDeviceGetGpuInstanceProfileInfoV", &library.profile) &&
           find(from, "nvmlDeviceGetGpuInstanceRemainingCapacity", &library.remaining) &&
           find(from, "nvmlDeviceGetGpuInstances", &library.instances) &&
           find(from, "nvmlGpuInstanceGetInfo", &library.instance) &&
           find(from, "nvmlGpuInstanceGetComputeInstanceProfileInfoV", &library.part) &&
           find(from, "nvmlGpuInstanceGetComputeInstances", &library.computes) &&
           find(from, "nvmlComputeInstanceGetInfo_v2", &library.compute);
}

const struct smi_library *smi_open(void) {
    void *from = open_library();

    if (!from || !find_all(from) || library.init() != NVML_SUCCESS) {
        puts("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make "
             "sure that the latest NVIDIA driver is installed and running.\n");
        return NULL;
    }
    return &library;
}

bool smi_gpu_at(const struct smi_library *nvml, unsigned int index, struct smi_gpu *gpu) {
    unsigned int count, mode, pending;
    nvmlPciInfo_t pci;

    *gpu = (struct smi_gpu){.index = index};
    if (nvml->count(&count) != NVML_SUCCESS || index >= count ||
        nvml->by_index(index, &gpu->device) != NVML_SUCCESS ||
        nvml->name(gpu->device, gpu->name, sizeof gpu->name) != NVML_SUCCESS ||
        nvml->uuid(gpu->device, gpu->uuid, sizeof gpu->uuid) != NVML_SUCCESS ||
        nvml->pci(gpu->device, &pci) != NVML_SUCCESS) {
        return false;
    }
    memcpy(gpu->bus, pci.busId, sizeof gpu->bus);
    gpu->mig = nvml->mode(gpu->device, &mode, &pending) == NVML_SUCCESS && mode;
    return true;
}

bool smi_means(const char *list, const struct smi_gpu *gpu) {
    char words[PATH_MAX], *rest = words;

    snprintf(words, sizeof words, "%s", list ? list : "");
    for (char *word; list && (word = strsep(&rest, ", "));) {
        char *end;
        unsigned long index = strtoul(word, &end, 10);
        if (end != word && *end == '\0' ? index == gpu->index : strcmp(word, gpu->uuid) == 0) {
            return true;
        }
    }
    return list == NULL;
}

static bool comes_before(const nvmlGpuInstanceProfileInfo_v2_t *a,
                         const nvmlGpuInstanceProfileInfo_v2_t *b) {
    if (a->sliceCount != b->sliceCount) {
        return a->sliceCount < b->sliceCount;
    }
    return a->memorySizeMB != b->memorySizeMB ? a->memorySizeMB < b->memorySizeMB : a->id < b->id;
}

unsigned int smi_profiles(const struct smi_library *nvml, const struct smi_gpu *gpu,
                          nvmlGpuInstanceProfileInfo_v2_t profiles[SMI_PROFILES]) {
    unsigned int n = 0;

    for (unsigned int kind = 0; kind < NVML_GPU_INSTANCE_PROFILE_COUNT && n < SMI_PROFILES;
         kind++) {
        nvmlGpuInstanceProfileInfo_v2_t info = {
            .version = NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2)};
        if (nvml->profile(gpu->device, kind, &info) != NVML_SUCCESS) {
            continue;
        }
        unsigned int at = n++;
        for (; at > 0 && comes_before(&info, &profiles[at - 1]); at--) {
            profiles[at] = profiles[at - 1];
        }
        profiles[at] = info;
    }
    return n;
}

const char *smi_text(nvmlReturn_t result) {
    switch (result) {
    case NVML_ERROR_NO_PERMISSION:
        return "Insufficient Permissions";
    case NVML_ERROR_IN_USE:
        return "In use by another client";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    default:
        return "Unknown Error";
    }
}
