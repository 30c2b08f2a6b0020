/* Which profiles of MIG instances each GPU has, and which instances. Nothing of a real GPU is changed. */
#include "probe.h"

#include <stdio.h>
#include <string.h>

#define TEXT 96
#define PLACES_MAX 16

/* NVML's number of the GPU instances with one compute slice. */
#define ONE_SLICE 0

/* The places where instances of a profile may begin, which the driver tells of GPUs in MIG mode alone. */
static void show_places(nvmlDevice_t gpu, unsigned id) {
    nvmlGpuInstancePlacement_t places[PLACES_MAX];
    unsigned count = 0;
    if (nvml.nvmlDeviceGetGpuInstancePossiblePlacements_v2 == NULL ||
        nvml.nvmlDeviceGetGpuInstancePossiblePlacements_v2(gpu, id, NULL, &count) != NVML_SUCCESS ||
        count > PLACES_MAX ||
        nvml.nvmlDeviceGetGpuInstancePossiblePlacements_v2(gpu, id, places, &count) !=
            NVML_SUCCESS) {
        return;
    }
    printf(",\"size\":%u,\"starts\":[", count > 0 ? places[0].size : 0);
    for (unsigned i = 0; i < count; i++) {
        printf("%s%u", i > 0 ? "," : "", places[i].start);
    }
    printf("]");
}

static void show_profiles(nvmlDevice_t gpu) {
    unsigned shown = 0;
    for (unsigned kind = 0; kind < NVML_GPU_INSTANCE_PROFILE_COUNT; kind++) {
        nvmlGpuInstanceProfileInfo_v2_t profile = {
            .version = NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2)};
        if (nvml.nvmlDeviceGetGpuInstanceProfileInfoV == NULL ||
            nvml.nvmlDeviceGetGpuInstanceProfileInfoV(gpu, kind, &profile) != NVML_SUCCESS) {
            continue;
        }
        const char *name = strncmp(profile.name, "MIG ", 4) == 0 ? profile.name + 4 : profile.name;
        printf("%s{\"name\":\"%s\",\"id\":%u,\"slices\":%u,\"instances\":%u,\"sms\":%u,"
               "\"memory_mib\":%llu",
               shown++ > 0 ? "," : "", name, profile.id, profile.sliceCount, profile.instanceCount,
               profile.multiprocessorCount, (unsigned long long)profile.memorySizeMB);
        show_places(gpu, profile.id);
        printf("}");
    }
}

/* An instance's name for programs, its profile, its memory, and how many processes use it. */
static void show_instance(unsigned shown, nvmlDevice_t instance) {
    static nvmlProcessInfo_t list[PROCESSES_MAX];
    char uuid[TEXT] = "", name[TEXT] = "";
    nvmlMemory_t memory = {0};
    unsigned users = 0;
    (void)nvml.nvmlDeviceGetUUID(instance, uuid, sizeof uuid);
    (void)nvml.nvmlDeviceGetMemoryInfo(instance, &memory);
    if (nvml.nvmlDeviceGetName != NULL) {
        (void)nvml.nvmlDeviceGetName(instance, name, sizeof name);
    }
    (void)running(instance, &users, list);
    const char *profile = strstr(name, "MIG ");
    printf("%s{\"uuid\":\"%s\",\"profile\":\"%s\",\"total\":%llu,\"users\":%u}",
           shown > 0 ? "," : "", uuid, profile != NULL ? profile + 4 : "", memory.total, users);
}

static void show_instances(nvmlDevice_t gpu) {
    unsigned most = 0, shown = 0;
    nvmlDevice_t instance;
    if (nvml.nvmlDeviceGetMaxMigDeviceCount == NULL ||
        nvml.nvmlDeviceGetMigDeviceHandleByIndex == NULL ||
        nvml.nvmlDeviceGetMaxMigDeviceCount(gpu, &most) != NVML_SUCCESS) {
        return;
    }
    for (unsigned i = 0; i < most; i++) {
        if (nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i, &instance) == NVML_SUCCESS) {
            show_instance(shown++, instance);
        }
    }
}

int command_mig(void) {
    unsigned count = 0;
    if (!open_nvml()) {
        return 3;
    }
    nvmlReturn_t result = nvml.nvmlInit_v2();
    if (result == NVML_SUCCESS) {
        result = nvml.nvmlDeviceGetCount_v2(&count);
    }
    printf("{\"command\":\"mig\",\"code\":%d,\"gpus\":[", (int)result);
    for (unsigned i = 0; i < count; i++) {
        nvmlDevice_t gpu;
        char uuid[TEXT] = "";
        unsigned mode = 0, pending = 0;
        if (nvml.nvmlDeviceGetHandleByIndex_v2(i, &gpu) != NVML_SUCCESS ||
            nvml.nvmlDeviceGetUUID(gpu, uuid, sizeof uuid) != NVML_SUCCESS) {
            uuid[0] = '\0';
        } else if (nvml.nvmlDeviceGetMigMode != NULL) {
            (void)nvml.nvmlDeviceGetMigMode(gpu, &mode, &pending);
        }
        printf("%s{\"uuid\":\"%s\",\"mig\":%s,\"pending\":%s,\"profiles\":[", i > 0 ? "," : "",
               uuid, mode != 0 ? "true" : "false", pending != 0 ? "true" : "false");
        if (uuid[0] != '\0') {
            show_profiles(gpu);
        }
        printf("],\"instances\":[");
        if (uuid[0] != '\0' && mode != 0) {
            show_instances(gpu);
        }
        printf("]}");
    }
    printf("]}\n");
    if (result == NVML_SUCCESS) {
        (void)nvml.nvmlShutdown();
    }
    return result == NVML_SUCCESS ? 0 : 1;
}

/* Makes an instance of one compute slice on a GPU, and says whether it could. */
static bool divide(nvmlDevice_t gpu) {
    nvmlGpuInstance_t instance;
    nvmlComputeInstance_t compute;
    nvmlGpuInstanceProfileInfo_v2_t profile = {
        .version = NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2)};
    return nvml.nvmlDeviceCreateGpuInstance != NULL &&
           nvml.nvmlGpuInstanceCreateComputeInstance != NULL &&
           nvml.nvmlDeviceGetGpuInstanceProfileInfoV != NULL &&
           nvml.nvmlDeviceGetGpuInstanceProfileInfoV(gpu, ONE_SLICE, &profile) == NVML_SUCCESS &&
           nvml.nvmlDeviceCreateGpuInstance(gpu, profile.id, &instance) == NVML_SUCCESS &&
           nvml.nvmlGpuInstanceCreateComputeInstance(
               instance, NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE, &compute) == NVML_SUCCESS;
}

int command_divide(void) {
    unsigned count = 0, made = 0, mode, pending;
    nvmlDevice_t gpu;
    if (!open_nvml()) {
        return 3;
    }
    if (!simulated()) {
        fputs("gpuprobe: only simulated GPUs are divided\n", stderr);
        return 1;
    }
    if (nvml.nvmlInit_v2() == NVML_SUCCESS) {
        (void)nvml.nvmlDeviceGetCount_v2(&count);
    }
    for (unsigned i = 0; i < count && nvml.nvmlDeviceGetMigMode != NULL; i++) {
        if (nvml.nvmlDeviceGetHandleByIndex_v2(i, &gpu) == NVML_SUCCESS &&
            nvml.nvmlDeviceGetMigMode(gpu, &mode, &pending) == NVML_SUCCESS && mode != 0) {
            made += divide(gpu);
        }
    }
    printf("{\"command\":\"divide\",\"made\":%u}\n", made);
    return 0;
}
