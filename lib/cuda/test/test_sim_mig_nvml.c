/* What NVML shows in a share on a MIG instance: the GPU with that instance, and nothing of others. */
#define _GNU_SOURCE
#include "cuda/test/busy.h"
#include "cuda/test/instance.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "abi/generated/nvml_functions.h"

#define TOTAL ((uint64_t)2048 * MIB)
#define LIMIT ((uint64_t)64 * MIB)
#define PATIENCE_S 300

static struct setting s;
static struct instance own, other, elsewhere;
static void *ours;

#define NVML(fn) (__extension__(__typeof__(&fn)) function_of(#fn))

static void *function_of(const char *name) {
    void *function = dlsym(ours, name);
    CHECK(function != NULL);
    return function;
}

static void begin(void) {
    setting_open(&s);
    ours = dlopen(setting_path(&s, "libnvidia-ml.so.1"), RTLD_NOW | RTLD_LOCAL);
    CHECK(ours != NULL);
    CHECK_EQUAL(NVML(nvmlInit_v2)(), NVML_SUCCESS);
}

static nvmlDevice_t parent(void) {
    nvmlDevice_t gpu;
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByIndex_v2)(0, &gpu), NVML_SUCCESS);
    return gpu;
}

static nvmlDevice_t instance(void) {
    nvmlDevice_t device;
    CHECK_EQUAL(NVML(nvmlDeviceGetMigDeviceHandleByIndex)(parent(), 0, &device), NVML_SUCCESS);
    return device;
}

static void check_parent(void) {
    unsigned count, now, next, index;
    char text[96];
    nvmlDevice_t none;
    CHECK_EQUAL(NVML(nvmlDeviceGetCount_v2)(&count), NVML_SUCCESS);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByIndex_v2)(1, &none), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(NVML(nvmlDeviceGetUUID)(parent(), text, sizeof text), NVML_SUCCESS);
    CHECK(strcmp(text, "GPU-01010101-0101-0101-0101-010101010101") == 0);
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByUUID)(text, &none), NVML_SUCCESS);
    CHECK(none == parent());
    CHECK_EQUAL(NVML(nvmlDeviceGetIndex)(parent(), &index), NVML_SUCCESS);
    CHECK_EQUAL(index, 0);
    CHECK_EQUAL(NVML(nvmlDeviceGetMigMode)(parent(), &now, &next), NVML_SUCCESS);
    CHECK_EQUAL(now, NVML_DEVICE_MIG_ENABLE);
}

static void check_instance(void) {
    nvmlDevice_t device = instance(), found;
    unsigned value;
    char text[96];
    CHECK_EQUAL(NVML(nvmlDeviceGetUUID)(device, text, sizeof text), NVML_SUCCESS);
    CHECK(strcmp(text, own.name) == 0);
    CHECK_EQUAL(NVML(nvmlDeviceGetIndex)(device, &value), NVML_SUCCESS);
    CHECK_EQUAL(value, 0); /* the driver's is 1 */
    CHECK_EQUAL(NVML(nvmlDeviceGetGpuInstanceId)(device, &value), NVML_SUCCESS);
    CHECK_EQUAL(value, own.gi);
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByUUID)(own.name, &found), NVML_SUCCESS);
    CHECK(found == device);
    CHECK_EQUAL(NVML(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)(device, &found), NVML_SUCCESS);
    CHECK(found == parent());
}

static void check_others(void) {
    nvmlGpuInstance_t list[8];
    nvmlDevice_t found = NULL;
    unsigned count = 8, most;
    CHECK_EQUAL(NVML(nvmlDeviceGetMaxMigDeviceCount)(parent(), &most), NVML_SUCCESS);
    for (unsigned i = 1; i < most; i++) {
        CHECK_EQUAL(NVML(nvmlDeviceGetMigDeviceHandleByIndex)(parent(), i, &found),
                    NVML_ERROR_NOT_FOUND);
    }
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByUUID)(other.name, &found), NVML_ERROR_NOT_FOUND);
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByUUID)(elsewhere.name, &found), NVML_ERROR_NOT_FOUND);
    CHECK(found == NULL);
    CHECK_EQUAL(NVML(nvmlDeviceGetGpuInstances)(parent(), INSTANCE_SMALL, list, &count),
                NVML_ERROR_NO_PERMISSION);
    CHECK_EQUAL(count, 8);
    CHECK_EQUAL(NVML(nvmlDeviceGetGpuInstanceById)(parent(), own.gi, list),
                NVML_ERROR_NO_PERMISSION);
    CHECK_EQUAL(NVML(nvmlDeviceGetGpuInstanceById)(parent(), 6, list), NVML_ERROR_NO_PERMISSION);
    CHECK_EQUAL(NVML(nvmlDeviceGetGpuInstanceRemainingCapacity)(parent(), INSTANCE_SMALL, &count),
                NVML_ERROR_NO_PERMISSION);
    CHECK_EQUAL(count, 8);
}

static void check_memory(uint64_t limit, uint64_t used) {
    nvmlDevice_t devices[] = {parent(), instance()};
    for (unsigned i = 0; i < 2; i++) {
        nvmlMemory_t memory;
        CHECK_EQUAL(NVML(nvmlDeviceGetMemoryInfo)(devices[i], &memory), NVML_SUCCESS);
        CHECK_EQUAL(memory.total, limit);
        CHECK_EQUAL(memory.used, used);
    }
}

/* This process alone, by the numbers of its instance; the neighbour in the other one is nobody. */
static void check_processes(void) {
    nvmlDevice_t devices[] = {parent(), instance()};
    for (unsigned i = 0; i < 2; i++) {
        nvmlProcessInfo_t list[8];
        unsigned count = 8;
        CHECK_EQUAL(NVML(nvmlDeviceGetComputeRunningProcesses_v3)(devices[i], &count, list),
                    NVML_SUCCESS);
        CHECK_EQUAL(count, 1);
        CHECK_EQUAL(list[0].pid, getpid());
        CHECK_EQUAL(list[0].gpuInstanceId, own.gi);
        CHECK_EQUAL(list[0].computeInstanceId, own.ci);
        CHECK_EQUAL(list[0].usedGpuMemory, SIM_CONTEXT + 10 * MIB);
    }
}

static void look(void *arg) {
    CUdeviceptr address;
    const uint64_t *limit = arg;
    begin();
    check_parent();
    check_instance();
    check_others();
    check_memory(*limit, 0);
    setting_context(&s);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 10 * MIB), CUDA_SUCCESS);
    check_memory(*limit, SIM_CONTEXT + 10 * MIB);
    check_processes();
}

/* The GPU is still there when the instance is not. */
static void look_for_what_is_gone(void *arg) {
    nvmlDevice_t found;
    (void)arg;
    begin();
    check_parent();
    CHECK_EQUAL(NVML(nvmlDeviceGetMigDeviceHandleByIndex)(parent(), 0, &found),
                NVML_ERROR_NOT_FOUND);
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByUUID)(own.name, &found), NVML_ERROR_NOT_FOUND);
}

/* A program beside the share, in the other instance, until the pipe closes. */
static pid_t neighbour(int until, int ready) {
    pid_t child = fork();
    if (child == 0) {
        CUcontext context;
        char byte;
        die_with_parent();
        setenv("DIVVY_SIMGPU", sim_machine_directory(), 1);
        setenv("CUDA_VISIBLE_DEVICES", other.name, 1);
        void *driver = dlopen(SIM_DRIVER, RTLD_NOW | RTLD_LOCAL);
        CHECK(driver != NULL);
        CUresult (*init)(unsigned) = __extension__(CUresult (*)(unsigned)) dlsym(driver, "cuInit");
        CUresult (*retain)(CUcontext *, CUdevice) =
            __extension__(CUresult (*)(CUcontext *, CUdevice))
                dlsym(driver, "cuDevicePrimaryCtxRetain");
        CHECK_EQUAL(init(0), CUDA_SUCCESS);
        CHECK_EQUAL(retain(&context, 0), CUDA_SUCCESS);
        CHECK_EQUAL(write(ready, "r", 1), 1);
        CHECK_EQUAL(read(until, &byte, 1), 1);
        _exit(0);
    }
    return child;
}

int main(void) {
    uint64_t limit = TOTAL;
    int until[2], ready[2];
    char byte;
    alarm(PATIENCE_S);
    sim_mig = true;
    sim_make_closed(&s, 1, LIMIT);
    instance_make(0, INSTANCE_SMALL, &other);
    instance_make(0, INSTANCE_SMALL, &own);
    instance_make(1, INSTANCE_HALF, &elsewhere);
    CHECK(pipe(until) == 0 && pipe(ready) == 0);
    pid_t beside = neighbour(until[0], ready[1]);
    CHECK_EQUAL(read(ready[0], &byte, 1), 1);
    instance_grant(&s, &own, TOTAL, limit);
    wait_exited(spawn(look, &limit));
    limit = LIMIT;
    instance_grant(&s, &own, TOTAL, limit);
    wait_exited(spawn(look, &limit));
    CHECK(instance_end(&own));
    wait_exited(spawn(look_for_what_is_gone, NULL));
    CHECK_EQUAL(write(until[1], "e", 1), 1);
    wait_exited(beside);
    return 0;
}
