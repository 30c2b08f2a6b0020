/* Bytes from outside: code, visibility lists, handles of other processes, a machine's state.
 * Whatever they are, the driver answers and stays whole. Built with -fsanitize=fuzzer -DFUZZER it
 * is a target for libFuzzer; else it tries many mutations by itself. */
#define _GNU_SOURCE
#include "simgpu/cuda/test/cuda.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUNS 60000
#define ROOM 512u

static void try_code(const uint8_t *bytes, size_t size) {
    char text[ROOM + 8] = {0};
    CUmodule module;
    CUfunction functions[8];
    CUdeviceptr address;
    size_t offset, length;
    unsigned count;

    memcpy(text, bytes, size);
    if (cuModuleLoadData(&module, text) != CUDA_SUCCESS) {
        return;
    }
    OK(cuModuleGetFunctionCount(&count, module));
    count = count < 8 ? count : 8;
    OK(cuModuleEnumerateFunctions(functions, count, module));
    for (unsigned i = 0; i < count; i++) {
        cuFuncGetParamInfo(functions[i], i, &offset, &length);
    }
    cuModuleGetGlobal_v2(&address, &length, module, "v");
    text[5] = '\0';
    if (text[0]) {
        cuModuleGetFunction(functions, module, text);
    }
    OK(cuModuleUnload(module));
}

static void try_list(const uint8_t *bytes, size_t size) {
    char text[ROOM + 1] = {0};
    uint32_t gpus[SG_GPUS_MAX], seen = 0;

    memcpy(text, bytes, size);
    struct sg_sight sight = {.visible = text, .hidden = size ? bytes[0] & 5 : 0};
    if (size % 2) {
        sight.order = "PCI_BUS_ID";
    }
    unsigned n = sg_visible(sg_driver.machine, &sight, gpus);
    CHECK(n <= GPU_COUNT);
    for (unsigned i = 0; i < n; i++) {
        CHECK(gpus[i] < GPU_COUNT && !(seen >> gpus[i] & 1) && !(sight.hidden >> gpus[i] & 1));
        seen |= 1u << gpus[i];
    }
}

static void try_handles(const uint8_t *bytes, size_t size) {
    CUmemPoolPtrExportData data = {{0}};
    CUipcEventHandle event_handle = {{0}};
    CUipcMemHandle handle = {{0}};
    static CUmemoryPool imported;
    CUdeviceptr address;
    CUdevice device;
    CUevent event;
    char text[ROOM + 1] = {0};

    memcpy(handle.reserved, bytes, size < 64 ? size : 64);
    memcpy(data.reserved, handle.reserved, 64);
    memcpy(event_handle.reserved, handle.reserved, 64);
    CHECK(cuIpcOpenMemHandle_v2(&address, handle, 1) != CUDA_SUCCESS);
    CHECK(cuIpcOpenEventHandle(&event, event_handle) != CUDA_SUCCESS);
    CHECK(cuMemPoolImportPointer(&address, imported, &data) != CUDA_SUCCESS);
    memcpy(text, bytes, size);
    if (cuDeviceGetByPCIBusId(&device, text) == CUDA_SUCCESS) {
        CHECK((unsigned)device < GPU_COUNT);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (sg_driver.state == DRIVER_DOWN) {
        cuda_start(NULL);
    }
    size = size < ROOM ? size : ROOM;
    try_code(bytes, size);
    try_list(bytes, size);
    try_handles(bytes, size);
    return 0;
}

#ifndef FUZZER
static uint32_t random_below(uint32_t bound) {
    static uint64_t state = 3;

    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % bound);
}

static size_t mutate(uint8_t *bytes, size_t size) {
    for (uint32_t i = 1 + random_below(6); i > 0; i--) {
        uint32_t at = random_below((uint32_t)size);
        switch (random_below(4)) {
        case 0:
            bytes[at] = (uint8_t)random_below(256);
            break;
        case 1:
            bytes[at] ^= (uint8_t)(1u << random_below(8));
            break;
        case 2:
            memmove(bytes + at, bytes + random_below((uint32_t)size), size - at > 9 ? 9 : 1);
            break;
        default:
            size = size > 8 ? size - random_below(4) : size;
        }
    }
    return size;
}

static void try_mutations(const void *seed, size_t seed_size) {
    uint8_t bytes[ROOM + 16];

    for (int i = 0; i < RUNS; i++) {
        memset(bytes, 0, sizeof bytes);
        memcpy(bytes, seed, seed_size);
        LLVMFuzzerTestOneInput(bytes, mutate(bytes, seed_size));
    }
}

/* A state file of any content is refused or opened, and one that is cut short is refused. */
static void try_state(const char *directory) {
    char path[SG_PATH_BYTES + 16], bad[SG_PATH_BYTES + 8];
    struct sg_instance in;
    static unsigned char head[4096];

    snprintf(path, sizeof path, "%s/state", directory);
    snprintf(bad, sizeof bad, "%s-bad", directory);
    int fd = open(path, O_RDONLY);
    CHECK_EQUAL(read(fd, head, sizeof head), (ssize_t)sizeof head);
    close(fd);
    CHECK_EQUAL(mkdir(bad, 0700), 0);
    snprintf(path, sizeof path, "%s/state", bad);
    for (size_t cut = 0; cut <= sizeof head; cut += cut < 16 ? 1 : 511) {
        fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK_EQUAL(write(fd, head, cut), (ssize_t)cut);
        close(fd);
        CHECK(sg_open(&in, bad, "", true) < 0);
        CHECK_EQUAL(setenv("DIVVY_SIMGPU", bad, 1), 0);
    }
    unlink(path);
    rmdir(bad);
}

int main(void) {
    static const char ptx[] =
        ".version 7.0\n.target sm_80\n.visible .entry one(.param .u64 a)\n{ ret; }\n"
        ".entry two$3(.param .align 8 .b8 p[16], .param .u64 .ptr .global .align 4 q){ }\n"
        ".global .align 4 .v2 .u32 v[2][3] = {1, -2, 0x3, 0f3F800000, 1.5};";
    static const char list[] =
        "GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1,0,GPU-a2,3,MIG-1,0000:11:00.0";
    CUipcMemHandle real;
    CUdeviceptr a;

    cuda_start(NULL);
    OK(cuMemAlloc_v2(&a, 100));
    OK(cuIpcGetMemHandle(&real, a));
    try_mutations(ptx, sizeof ptx);
    try_mutations(list, sizeof list);
    try_mutations(&real, sizeof real);
    try_state(sg_driver.instance.dir);
    OK(cuMemFree_v2(a));
    CHECK_EQUAL(cuda_true_all(), 4 * MIB);
    return 0;
}
#endif
