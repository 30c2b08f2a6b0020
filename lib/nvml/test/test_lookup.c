/* Which GPUs a program in a share finds, by every way that NVML has to find one. */
#define _GNU_SOURCE
#include "nvml/test/setting.h"

#include <dlfcn.h>
#include <string.h>

static struct setting setting;

#define CALL(fn, ...) NVML(&setting, fn)(__VA_ARGS__)

static void test_before_init(void) {
    unsigned int count = 77;
    nvmlDevice_t device = NULL;
    CHECK_EQUAL(CALL(nvmlDeviceGetCount_v2, &count), NVML_ERROR_UNINITIALIZED);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByIndex_v2, 0, &device), NVML_ERROR_UNINITIALIZED);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByUUID, "GPU-", &device), NVML_ERROR_UNINITIALIZED);
    CHECK_EQUAL(CALL(nvmlShutdown, ), NVML_ERROR_UNINITIALIZED);
    CHECK_EQUAL(count, 77);
}

/* Every name of the description is ours, so that programs can be linked against us. */
static void test_names(void) {
    static const char *const names[] = {
#define NVML_FN(name, base, version, kind) #name,
#include "abi/generated/nvml_names.inc"
#undef NVML_FN
    };
    Dl_info ours, theirs;
    CHECK(dladdr(setting_function(&setting, "nvmlInit_v2"), &ours) != 0);
    for (size_t at = 0; at < sizeof names / sizeof names[0]; at++) {
        Dl_info info;
        CHECK(dladdr(setting_function(&setting, names[at]), &info) != 0);
        CHECK(info.dli_fbase == ours.dli_fbase);
    }
    CHECK(dladdr(setting_function(&setting, "nvmlDeviceGetSomethingNewer"), &theirs) != 0);
    CHECK(theirs.dli_fbase != ours.dli_fbase);
    CHECK(dlsym(setting.library, "__start_dv_forwards") == NULL);
    CHECK(dlsym(setting.library, "dv_depth") == NULL);
}

/* A name that the driver lacks is an answer, not a crash. */
static void test_missing_names(void) {
    char text[96];
    CHECK_EQUAL(CALL(nvmlSystemGetDriverVersion, text, sizeof text), NVML_ERROR_FUNCTION_NOT_FOUND);
    unsigned int count = 0;
    CHECK_EQUAL(CALL(nvmlDeviceGetComputeRunningProcesses_v2, setting.gpu[1], &count, NULL),
                NVML_ERROR_FUNCTION_NOT_FOUND);
    CHECK(strcmp(CALL(nvmlErrorString, NVML_ERROR_UNKNOWN), "Unknown Error") == 0);
}

static void test_numbers(void) {
    unsigned int count = 0, index = 0;
    nvmlDevice_t device = NULL;
    CHECK_EQUAL(CALL(nvmlDeviceGetCount, &count), NVML_SUCCESS);
    CHECK_EQUAL(count, SHARE_GPUS);
    CHECK_EQUAL(CALL(nvmlDeviceGetCount_v2, &count), NVML_SUCCESS);
    CHECK_EQUAL(count, SHARE_GPUS);
    CHECK_EQUAL(CALL(nvmlDeviceGetCount_v2, NULL), NVML_ERROR_INVALID_ARGUMENT);

    /* The order of the machine, not of the config page. */
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByIndex_v2, 0, &device), NVML_SUCCESS);
    CHECK(device == setting.gpu[1]);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByIndex, 1, &device), NVML_SUCCESS);
    CHECK(device == setting.gpu[2]);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByIndex, 2, &device), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByIndex_v2, ~0u, &device), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByIndex_v2, 0, NULL), NVML_ERROR_INVALID_ARGUMENT);
    CHECK(device == setting.gpu[2]);

    CHECK_EQUAL(CALL(nvmlDeviceGetIndex, setting.gpu[1], &index), NVML_SUCCESS);
    CHECK_EQUAL(index, 0);
    CHECK_EQUAL(CALL(nvmlDeviceGetIndex, setting.gpu[2], &index), NVML_SUCCESS);
    CHECK_EQUAL(index, 1);
    CHECK_EQUAL(CALL(nvmlDeviceGetIndex, setting.gpu[3], &index), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(CALL(nvmlDeviceGetIndex, setting.gpu[1], NULL), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(CALL(nvmlDeviceGetIndex, NULL, &index), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(index, 1);
}

static void test_lost_gpu(void) {
    nvmlDevice_t device = NULL;
    setting.driver->lost[1] = true;
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByIndex_v2, 0, &device), NVML_SUCCESS);
    CHECK(device == setting.gpu[2]);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByIndex_v2, 1, &device), NVML_ERROR_GPU_IS_LOST);
    setting.driver->lost[1] = false;
}

static void test_keys(void) {
    char inside[96] = "", outside[] = "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf";
    nvmlDevice_t device = NULL;
    CHECK_EQUAL(CALL(nvmlDeviceGetUUID, setting.gpu[1], inside, sizeof inside), NVML_SUCCESS);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByUUID, inside, &device), NVML_SUCCESS);
    CHECK(device == setting.gpu[1]);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByUUID, outside, &device), NVML_ERROR_NOT_FOUND);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByUUID, "nonsense", &device), NVML_ERROR_NOT_FOUND);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByUUID, NULL, &device), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByUUID, inside, NULL), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleBySerial, "serial-3", &device), NVML_ERROR_NOT_FOUND);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByPciBusId_v2, "bus-0", &device), NVML_ERROR_NOT_FOUND);
    CHECK(device == setting.gpu[1]);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleBySerial, "serial-2", &device), NVML_SUCCESS);
    CHECK(device == setting.gpu[2]);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByPciBusId_v2, "bus-1", &device), NVML_SUCCESS);
    CHECK(device == setting.gpu[1]);
}

static void test_mig(void) {
    nvmlDevice_t device = NULL;
    char uuid[96] = "";
    nvmlDevice_t mig = setting.gpu[FAKE_MIG];
    CHECK_EQUAL(CALL(nvmlDeviceGetMigDeviceHandleByIndex, setting.gpu[1], 0, &device),
                NVML_SUCCESS);
    CHECK(device == mig);
    CHECK_EQUAL(CALL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, mig, &device), NVML_SUCCESS);
    CHECK(device == setting.gpu[1]);
    CHECK_EQUAL(CALL(nvmlDeviceGetUUID, mig, uuid, sizeof uuid), NVML_SUCCESS);
    CHECK(strncmp(uuid, "MIG-", 4) == 0);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByUUID, uuid, &device), NVML_SUCCESS);
    CHECK(device == mig);
}

static void test_topology(void) {
    unsigned int count = 0;
    nvmlDevice_t near[FAKE_GPUS] = {NULL};
    nvmlGpuTopologyLevel_t level = (nvmlGpuTopologyLevel_t)77;
    CHECK_EQUAL(CALL(nvmlDeviceGetTopologyNearestGpus, setting.gpu[1], level, &count, NULL),
                NVML_SUCCESS);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(CALL(nvmlDeviceGetTopologyNearestGpus, setting.gpu[1], level, &count, NULL),
                NVML_ERROR_INVALID_ARGUMENT);
    count = FAKE_GPUS;
    CHECK_EQUAL(CALL(nvmlDeviceGetTopologyNearestGpus, setting.gpu[1], level, &count, near),
                NVML_SUCCESS);
    CHECK_EQUAL(count, 1);
    CHECK(near[0] == setting.gpu[2] && near[1] == NULL);

    CHECK_EQUAL(CALL(nvmlDeviceGetTopologyCommonAncestor, setting.gpu[1], setting.gpu[3], &level),
                NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(level, 77);
    CHECK_EQUAL(CALL(nvmlDeviceGetTopologyCommonAncestor, setting.gpu[1], setting.gpu[2], &level),
                NVML_SUCCESS);
    CHECK_EQUAL(level, 20);
    nvmlGpuP2PStatus_t status = (nvmlGpuP2PStatus_t)77;
    CHECK_EQUAL(CALL(nvmlDeviceGetP2PStatus, setting.gpu[0], setting.gpu[1],
                     (nvmlGpuP2PCapsIndex_t)0, &status),
                NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQUAL(status, 77);
    CHECK_EQUAL(CALL(nvmlGetExcludedDeviceCount, &count), NVML_SUCCESS);
    CHECK_EQUAL(count, 0);
}

static void test_sessions(void) {
    nvmlDevice_t device = NULL;
    unsigned int count = 0;
    CHECK_EQUAL(CALL(nvmlShutdown, ), NVML_SUCCESS);
    CHECK_EQUAL(CALL(nvmlDeviceGetHandleByIndex_v2, 0, &device), NVML_ERROR_UNINITIALIZED);
    CHECK_EQUAL(CALL(nvmlInitWithFlags, 0), NVML_SUCCESS);
    CHECK_EQUAL(CALL(nvmlInit, ), NVML_SUCCESS);
    CHECK_EQUAL(setting.driver->sessions, 2);
    CHECK_EQUAL(CALL(nvmlDeviceGetCount_v2, &count), NVML_SUCCESS);
    CHECK_EQUAL(count, SHARE_GPUS);
}

int main(void) {
    setting_make(&setting);
    test_before_init();
    test_names();
    CHECK_EQUAL(CALL(nvmlInit_v2, ), NVML_SUCCESS);
    test_missing_names();
    test_lost_gpu();
    test_numbers();
    test_keys();
    test_mig();
    test_topology();
    test_sessions();
    return 0;
}
