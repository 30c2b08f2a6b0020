#define _GNU_SOURCE
#include "cuda/test/instance.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi/generated/nvml_functions.h"

#define NVML(fn) (__extension__(__typeof__(&fn)) function_of(#fn))

static void *function_of(const char *name) {
    static void *library;
    if (library == NULL) {
        CHECK(setenv("DIVVY_SIMGPU", sim_machine_directory(), 1) == 0);
        library = dlopen(SIM_NVML, RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL);
        nvmlReturn_t (*init)(void) =
            __extension__(nvmlReturn_t (*)(void)) dlsym(library, "nvmlInit_v2");
        CHECK_EQUAL(init(), NVML_SUCCESS);
    }
    void *function = dlsym(library, name);
    CHECK(function != NULL);
    return function;
}

/* The MIG device of a GPU instance. */
static nvmlDevice_t device_of(nvmlDevice_t gpu, unsigned gi) {
    nvmlDevice_t device;
    unsigned id = ~0u;
    for (unsigned i = 0; id != gi; i++) {
        CHECK_EQUAL(NVML(nvmlDeviceGetMigDeviceHandleByIndex)(gpu, i, &device), NVML_SUCCESS);
        CHECK_EQUAL(NVML(nvmlDeviceGetGpuInstanceId)(device, &id), NVML_SUCCESS);
    }
    return device;
}

static void make(unsigned profile, struct instance *instance) {
    nvmlDevice_t gpu;
    nvmlGpuInstance_t gi;
    nvmlComputeInstance_t ci;
    nvmlGpuInstanceInfo_t info;
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByIndex_v2)(instance->gpu, &gpu), NVML_SUCCESS);
    CHECK_EQUAL(NVML(nvmlDeviceCreateGpuInstance)(gpu, profile, &gi), NVML_SUCCESS);
    unsigned part = profile == INSTANCE_HALF ? NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE
                                             : NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE;
    CHECK_EQUAL(NVML(nvmlGpuInstanceCreateComputeInstance)(gi, part, &ci), NVML_SUCCESS);
    CHECK_EQUAL(NVML(nvmlGpuInstanceGetInfo)(gi, &info), NVML_SUCCESS);
    instance->gi = info.id;
    nvmlDevice_t device = device_of(gpu, info.id);
    CHECK_EQUAL(NVML(nvmlDeviceGetComputeInstanceId)(device, &instance->ci), NVML_SUCCESS);
    CHECK_EQUAL(NVML(nvmlDeviceGetUUID)(device, instance->name, sizeof instance->name),
                NVML_SUCCESS);
}

static nvmlReturn_t end(const struct instance *instance) {
    nvmlDevice_t gpu;
    nvmlGpuInstance_t gi;
    nvmlComputeInstance_t ci;
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByIndex_v2)(instance->gpu, &gpu), NVML_SUCCESS);
    CHECK_EQUAL(NVML(nvmlDeviceGetGpuInstanceById)(gpu, instance->gi, &gi), NVML_SUCCESS);
    CHECK_EQUAL(NVML(nvmlGpuInstanceGetComputeInstanceById)(gi, instance->ci, &ci), NVML_SUCCESS);
    nvmlReturn_t result = NVML(nvmlComputeInstanceDestroy)(ci);
    return result == NVML_SUCCESS ? NVML(nvmlGpuInstanceDestroy)(gi) : result;
}

void instance_make(unsigned gpu, unsigned profile, struct instance *instance) {
    int ends[2], status;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct instance made = {.gpu = gpu};
        make(profile, &made);
        _exit(write(ends[1], &made, sizeof made) == sizeof made ? 0 : 1);
    }
    CHECK_EQUAL(read(ends[0], instance, sizeof *instance), sizeof *instance);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    const char *digits = instance->name + strlen("MIG-");
    for (unsigned i = 0; i < sizeof instance->uuid; i++) {
        unsigned byte;
        digits += *digits == '-';
        CHECK_EQUAL(sscanf(digits, "%2x", &byte), 1);
        instance->uuid[i] = (uint8_t)byte;
        digits += 2;
    }
}

bool instance_end(const struct instance *instance) {
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        nvmlReturn_t result = end(instance);
        CHECK(result == NVML_SUCCESS || result == NVML_ERROR_IN_USE);
        _exit(result == NVML_SUCCESS ? 0 : 3);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3);
    return WEXITSTATUS(status) == 0;
}

void instance_grant(struct setting *setting, const struct instance *instance, uint64_t total,
                    uint64_t limit) {
    uint32_t flags = DV_PAGE_FLAG_MIG;
    uint8_t parent[16];
    memset(parent, (int)(instance->gpu + 1), sizeof parent);
    tenant_write(&setting->tenant, "config", offsetof(dv_page_config, flags), &flags, sizeof flags);
    setting_uuid(setting, 0, instance->uuid);
    setting_write(setting, 0, offsetof(dv_page_device, parent), parent, sizeof parent);
    setting_write(setting, 0, offsetof(dv_page_device, total), &total, sizeof total);
    setting_write(setting, 0, offsetof(dv_page_device, limit), &limit, sizeof limit);
}
