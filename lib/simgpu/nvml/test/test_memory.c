/* Memory and processes as NVML tells them, and that the dead are in neither. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/generated/nvml_functions.h"
#include "simgpu/machine/test/setting.h"

static nvmlDevice_t devices[GPU_COUNT];

static void check_empty(void) {
    nvmlMemory_t memory;
    nvmlMemory_v2_t memory2 = {.version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)};
    unsigned int count = 0;

    CHECK_EQUAL(nvmlDeviceGetMemoryInfo(devices[0], &memory), NVML_SUCCESS);
    CHECK_EQUAL(memory.total, GPU_BYTES);
    CHECK_EQUAL(memory.used, GPU_RESERVED);
    CHECK_EQUAL(memory.free, GPU_BYTES - GPU_RESERVED);
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo_v2(devices[0], &memory2), NVML_SUCCESS);
    CHECK_EQUAL(memory2.reserved, GPU_RESERVED);
    CHECK_EQUAL(memory2.used, 0);
    CHECK_EQUAL(memory2.free, GPU_BYTES - GPU_RESERVED);
    memory2.version = 2;
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo_v2(devices[0], &memory2),
                NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(devices[0], &count, NULL), NVML_SUCCESS);
    CHECK_EQUAL(count, 0);
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(devices[0], NULL, NULL),
                NVML_ERROR_INVALID_ARGUMENT);
}

/* Two processes on GPU 0 with 10 and 3 blocks. */
static void check_used(pid_t ten, pid_t three) {
    nvmlMemory_t memory;
    nvmlMemory_v2_t memory2 = {.version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)};
    nvmlProcessInfo_t list[2] = {{0}};
    unsigned int count = 0;

    CHECK_EQUAL(nvmlDeviceGetMemoryInfo(devices[0], &memory), NVML_SUCCESS);
    CHECK_EQUAL(memory.used, GPU_RESERVED + 13 * SG_BLOCK_BYTES);
    CHECK_EQUAL(memory.free + memory.used, memory.total);
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo_v2(devices[0], &memory2), NVML_SUCCESS);
    CHECK_EQUAL(memory2.used, 13 * SG_BLOCK_BYTES);
    CHECK_EQUAL(memory2.free + memory2.used + memory2.reserved, memory2.total);
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(devices[0], &count, NULL),
                NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK_EQUAL(count, 2);
    count = 1;
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(devices[0], &count, list),
                NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(list[0].pid, 0);
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(devices[0], &count, list), NVML_SUCCESS);
    CHECK_EQUAL(list[0].pid, ten);
    CHECK_EQUAL(list[0].usedGpuMemory, 10 * SG_BLOCK_BYTES);
    CHECK_EQUAL(list[0].gpuInstanceId, NVML_INSTANCE_ID_ANY);
    CHECK_EQUAL(list[1].pid, three);
    CHECK_EQUAL(list[1].usedGpuMemory, 3 * SG_BLOCK_BYTES);
}

/* The first form has 16 bytes a process: the caller's buffer ends right behind the list. */
static void check_strides(pid_t ten, pid_t three) {
    struct {
        nvmlProcessInfo_v1_t list[2];
        unsigned char behind[32];
    } v1;
    nvmlProcessDetail_v1_t detail[4];
    nvmlProcessDetailList_t details = {.version = NVML_STRUCT_VERSION(nvmlProcessDetailList_t, 1),
                                       .numProcArrayEntries = 4,
                                       .procArray = detail};
    unsigned int count = 2;

    memset(&v1, 0x5a, sizeof v1);
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses(devices[0], &count, v1.list), NVML_SUCCESS);
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(v1.list[0].pid, ten);
    CHECK_EQUAL(v1.list[1].pid, three);
    CHECK_EQUAL(v1.list[1].usedGpuMemory, 3 * SG_BLOCK_BYTES);
    for (size_t i = 0; i < sizeof v1.behind; i++) {
        CHECK_EQUAL(v1.behind[i], 0x5a);
    }
    CHECK_EQUAL(nvmlDeviceGetRunningProcessDetailList(devices[0], &details), NVML_SUCCESS);
    CHECK_EQUAL(details.numProcArrayEntries, 2);
    CHECK_EQUAL(detail[1].pid, three);
}

static void check_other_lists(void) {
    nvmlProcessInfo_t list[4];
    unsigned int count = 4;

    CHECK_EQUAL(nvmlDeviceGetGraphicsRunningProcesses_v3(devices[0], &count, list), NVML_SUCCESS);
    CHECK_EQUAL(count, 0);
    count = 4;
    CHECK_EQUAL(nvmlDeviceGetMPSComputeRunningProcesses_v3(devices[0], &count, list), NVML_SUCCESS);
    CHECK_EQUAL(count, 0);
    count = 4;
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(devices[1], &count, list), NVML_SUCCESS);
    CHECK_EQUAL(count, 0);
}

/* Makes one process the client of an MPS server that this process is. */
static void check_mps(pid_t client, pid_t other) {
    struct sg_instance in;
    nvmlProcessInfo_t list[4];
    unsigned int count = 4;

    CHECK_EQUAL(sg_open(&in, getenv("DIVVY_SIMGPU"), "", true), 0);
    int server =
        sg_server_start(&in, &(struct sg_server){.status = SG_SERVER_ACTIVE, .percentage = 100});
    CHECK(server >= 0);
    in.state->clients[in.id].contexts[0] = 1;
    for (uint32_t i = 0; (i = sg_next_client(&in, i)) < SG_CLIENTS_MAX; i++) {
        const struct sg_client *c = &in.state->clients[i];
        if (c->who.pid == client) {
            CHECK_EQUAL(sg_server_admit(&in, (uint32_t)server, i, c->generation, 1), SG_JOINED);
        }
    }
    CHECK_EQUAL(nvmlDeviceGetMPSComputeRunningProcesses_v3(devices[0], &count, list), NVML_SUCCESS);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(list[0].pid, client);
    count = 4;
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(devices[0], &count, list), NVML_SUCCESS);
    CHECK_EQUAL(count, 3);
    CHECK_EQUAL(list[1].pid, other);
    CHECK_EQUAL(list[2].pid, getpid());
    sg_close(&in);
}

int main(void) {
    sim_machine machine;
    nvmlMemory_t memory;

    setting_describe(&machine);
    setting_make(&machine);
    CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
    for (unsigned int i = 0; i < GPU_COUNT; i++) {
        CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(i, &devices[i]), NVML_SUCCESS);
    }
    check_empty();
    pid_t ten = setting_process("a", 0, 10, 0);
    pid_t three = setting_process("b", 0, 3, 0);
    check_used(ten, three);
    check_strides(ten, three);
    check_other_lists();
    check_mps(ten, three);
    setting_kill(ten);
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo(devices[0], &memory), NVML_SUCCESS);
    CHECK_EQUAL(memory.used, GPU_RESERVED + 3 * SG_BLOCK_BYTES);
    setting_kill(three);
    check_empty();
    CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
    return 0;
}
