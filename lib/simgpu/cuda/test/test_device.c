/* Devices, their order and visibility; lookup of functions; names of errors; loading of code. */
#include "simgpu/cuda/test/cuda.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_sight(const sim_machine *machine, const char *list, const char *order,
                        uint32_t hidden, const char *want) {
    uint32_t gpus[SG_GPUS_MAX];
    char got[SG_GPUS_MAX + 1] = "";
    struct sg_sight sight = {.visible = list, .order = order, .hidden = hidden};
    unsigned n = sg_visible(machine, &sight, gpus);

    for (unsigned i = 0; i < n; i++) {
        got[i] = (char)('0' + gpus[i]);
    }
    if (strcmp(got, want) != 0) {
        fprintf(stderr, "CUDA_VISIBLE_DEVICES=%s gives %s, not %s\n", list ? list : "(none)", got,
                want);
    }
    CHECK(strcmp(got, want) == 0);
}

static void check_list(const sim_machine *machine, const char *list, const char *order,
                       const char *want) {
    check_sight(machine, list, order, 0, want);
}

static void check_visible(void) {
    sim_machine machine;

    setting_describe(&machine);
    machine.gpus[2].graphics_mhz = 2000;
    check_list(&machine, NULL, NULL, "2013");
    check_list(&machine, NULL, "PCI_BUS_ID", "0123");
    check_list(&machine, "1,0", "PCI_BUS_ID", "10");
    check_list(&machine, "0", NULL, "2");
    check_list(&machine, "", NULL, "");
    check_list(&machine, "-1", NULL, "");
    check_list(&machine, "1,-1,0", "PCI_BUS_ID", "1");
    check_list(&machine, "1,9,0", "PCI_BUS_ID", "1");
    check_list(&machine, "1,x,0", "PCI_BUS_ID", "1");
    check_list(&machine, "0x1,0", "PCI_BUS_ID", "");
    check_list(&machine, " 1 , 0", "PCI_BUS_ID", "10");
    check_list(&machine, "1,1", "PCI_BUS_ID", "");
    check_list(&machine, "GPU-a1", NULL, "1");
    check_list(&machine, "GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1,GPU-a3", NULL, "13");
    check_list(&machine, "GPU-a", NULL, ""); /* names four of them */
    check_list(&machine, "GPU-ff,0", NULL, "");
    check_list(&machine, "MIG-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1,0", NULL, "");
    check_list(&machine, "3,2,1,0,3", "PCI_BUS_ID", "");
    check_sight(&machine, NULL, NULL, 1u << 2, "013");
    check_sight(&machine, NULL, "PCI_BUS_ID", 1u << 0 | 1u << 2, "13");
    check_sight(&machine, "0", "PCI_BUS_ID", 1u << 0 | 1u << 2, "1");
    check_sight(&machine, "2", "PCI_BUS_ID", 1u << 0 | 1u << 2, "");
    check_sight(&machine, "GPU-a0,1", "PCI_BUS_ID", 1u << 0, "");
    check_sight(&machine, "GPU-a", "PCI_BUS_ID", 1u << 0 | 1u << 1 | 1u << 2, "3");
    check_sight(&machine, NULL, NULL, 15, "");
    CHECK_EQUAL(sg_denied(&machine, "/nonexistent"), 0);
}

static void check_facts(void) {
    CUuuid uuid;
    CUdevice device;
    size_t bytes;
    char text[32];
    int count, value, major, minor;

    OK(cuDeviceGetCount(&count));
    CHECK_EQUAL(count, GPU_COUNT);
    FAILS(cuDeviceGet(&device, 4), CUDA_ERROR_INVALID_DEVICE);
    FAILS(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
    OK(cuDeviceGetName(text, sizeof text, 0));
    CHECK(strcmp(text, "Simulated GPU") == 0);
    OK(cuDeviceGetName(text, 4, 0));
    CHECK(strcmp(text, "Sim") == 0);
    OK(cuDeviceGetPCIBusId(text, sizeof text, 3));
    CHECK(strcmp(text, "0000:81:00.0") == 0);
    OK(cuDeviceGetByPCIBusId(&device, text));
    CHECK_EQUAL(device, 3);
    FAILS(cuDeviceGetByPCIBusId(&device, "nonsense"), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuDeviceGetByPCIBusId(&device, "0000:55:00.0"), CUDA_ERROR_INVALID_DEVICE);
    OK(cuDeviceGetUuid_v2(&uuid, 1));
    CHECK_EQUAL((unsigned char)uuid.bytes[0], 0xa1);
    OK(cuDeviceTotalMem_v2(&bytes, 0));
    CHECK_EQUAL(bytes, GPU_BYTES - GPU_RESERVED);
    OK(cuDeviceComputeCapability(&major, &minor, 0));
    CHECK_EQUAL(major, 8);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    CHECK_EQUAL(value, 10);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 1));
    CHECK_EQUAL(value, 0x12);
    FAILS(cuDeviceGetAttribute(&value, 9999, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    CHECK_EQUAL(value, 1);
    FAILS(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0),
          CUDA_ERROR_INVALID_DEVICE);
}

typedef void (*function)(void);

static function find(const char *name, int version, cuuint64_t flags,
                     CUdriverProcAddressQueryResult *status) {
    void *found = (void *)1;
    function f;
    CUresult result = cuGetProcAddress_v2(name, &found, version, flags, status);

    CHECK_EQUAL(result, CUDA_SUCCESS);
    memcpy(&f, &found, sizeof f);
    void *first = found;
    found = (void *)1;
    result = cuGetProcAddress(name, &found, version, flags);
    CHECK_EQUAL(result, first ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
    CHECK(found == (first ? first : (void *)1));
    return f;
}

#define IS(found, name) CHECK(found == (function)name)
#pragma GCC diagnostic ignored "-Wcast-function-type"

static void check_lookup(void) {
    CUdriverProcAddressQueryResult status;
    const void *table = &status;
    CUuuid id = {{0}};
    void *found;

    IS(find("cuMemAlloc", 12000, 0, &status), cuMemAlloc_v2);
    CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_SUCCESS);
    IS(find("cuMemAlloc", 3010, 0, NULL), cuMemAlloc);
    IS(find("cuCtxCreate", 4000, 0, NULL), cuCtxCreate_v2);
    IS(find("cuCtxCreate", 11040, 0, NULL), cuCtxCreate_v3);
    IS(find("cuMemcpyHtoD", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL),
       cuMemcpyHtoD_v2_ptds);
    CHECK(!find("cuMemcpyHtoD", 6000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
    CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    IS(find("cuMemcpyHtoD", 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, NULL), cuMemcpyHtoD_v2);
    IS(find("cuLaunchKernel", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL),
       cuLaunchKernel_ptsz);
    IS(find("cuMemGetInfo", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL),
       cuMemGetInfo_v2);
    IS(find("cuGetProcAddress", 12000, 0, NULL), cuGetProcAddress_v2);
    IS(find("cuGetProcAddress", 11030, 0, NULL), cuGetProcAddress);
    CHECK(find("cuLibraryLoadData", 11080, 0, &status) == NULL);
    CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    CHECK(find("cuNothing", 12000, 0, &status) == NULL);
    CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    /* Newer than the machine's driver, which is of CUDA 12.4. */
    CHECK(find("cuMemcpyBatchAsync", 13000, 0, &status) == NULL);
    CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    IS(find("cuCtxCreate", 13000, 0, NULL), cuCtxCreate_v3);
    IS(find("cuMemcpyHtoD", 12000, 3, NULL), cuMemcpyHtoD_v2_ptds);
    FAILS(cuGetProcAddress_v2("cuInit", &found, 12000, 4, NULL), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuGetProcAddress_v2(NULL, &found, 12000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_SUPPORTED);
    CHECK(table == NULL);
}

static void check_errors(void) {
    const char *text;

    OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    CHECK(strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
    OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    CHECK(strcmp(text, "out of memory") == 0);
    OK(cuGetErrorString(CUDA_ERROR_LAUNCH_FAILED, &text));
    CHECK(strcmp(text, "unspecified launch failure") == 0);
    FAILS(cuGetErrorName(4242, &text), CUDA_ERROR_INVALID_VALUE);
    CHECK(text == NULL);
    /* Newer than the machine's driver. */
    FAILS(cuGetErrorName(CUDA_ERROR_TENSOR_MEMORY_LEAK, &text), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuGetErrorString(CUDA_ERROR_TENSOR_MEMORY_LEAK, &text), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuEGLStreamConsumerDisconnect(NULL), CUDA_ERROR_NOT_SUPPORTED);
}

static void check_code(void) {
    static const unsigned char elf[] = "\177ELF...";
    CUmodule module;
    CUlibrary library;
    CUkernel kernel;
    CUfunction f;
    unsigned count;
    const char *name;
    int blocks;

    FAILS(cuModuleLoadData(&module, "no code at all"), CUDA_ERROR_INVALID_IMAGE);
    FAILS(cuModuleLoadData(&module, ""), CUDA_ERROR_INVALID_IMAGE);
    FAILS(cuModuleLoad(&module, "/nonexistent/file"), CUDA_ERROR_FILE_NOT_FOUND);
    OK(cuModuleLoadData(&module, elf));
    OK(cuModuleGetFunction(&f, module, "anything"));
    OK(cuModuleUnload(module));
    FAILS(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
    FAILS(cuFuncLoad(f), CUDA_ERROR_INVALID_HANDLE);
    OK(cuLibraryLoadData(&library, ".version 8.0\n.visible .entry first()\n{}\n.entry second(){}",
                         NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernelCount(&count, library));
    CHECK_EQUAL(count, 2);
    FAILS(cuLibraryGetKernel(&kernel, library, "third"), CUDA_ERROR_NOT_FOUND);
    OK(cuLibraryGetKernel(&kernel, library, "second"));
    OK(cuKernelGetName(&name, kernel));
    CHECK(strcmp(name, "second") == 0);
    OK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuKernelGetFunction(&f, kernel));
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 256, 0));
    CHECK_EQUAL(blocks, 8);
    FAILS(cuLaunchCooperativeKernel(f, 81, 1, 1, 256, 1, 1, 0, NULL, NULL),
          CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    OK(cuLaunchCooperativeKernel(f, 80, 1, 1, 256, 1, 1, 0, NULL, NULL));
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    CUlaunchConfig config = {.gridDimX = 81,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 256,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .attrs = &cooperative,
                             .numAttrs = 1};
    FAILS(cuLaunchKernelEx(&config, f, NULL, NULL), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    config.gridDimX = 80;
    OK(cuLaunchKernelEx(&config, f, NULL, NULL));
    OK(cuLibraryUnload(library));
}

static void check_link(void) {
    char one[] = ".version 8.0\n.entry one(){}", two[] = ".entry two(){}";
    CUlinkState link;
    CUmodule module;
    CUfunction f;
    void *image;
    size_t size;

    OK(cuLinkCreate_v2(0, NULL, NULL, &link));
    FAILS(cuLinkComplete(link, &image, &size), CUDA_ERROR_INVALID_VALUE);
    OK(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, one, sizeof one, "one", 0, NULL, NULL));
    OK(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, two, sizeof two, "two", 0, NULL, NULL));
    OK(cuLinkComplete(link, &image, &size));
    OK(cuModuleLoadData(&module, image));
    OK(cuLinkDestroy(link));
    FAILS(cuLinkDestroy(link), CUDA_ERROR_INVALID_HANDLE);
    OK(cuModuleGetFunction(&f, module, "one"));
    OK(cuModuleGetFunction(&f, module, "two"));
    FAILS(cuModuleGetFunction(&f, module, "three"), CUDA_ERROR_NOT_FOUND);
    OK(cuModuleUnload(module));
}

int main(void) {
    int version;

    check_visible();
    unsetenv("DIVVY_SIMGPU");
    FAILS(cuInit(0), CUDA_ERROR_NO_DEVICE);
    FAILS(cuDriverGetVersion(&version), CUDA_ERROR_NO_DEVICE);
    cuda_start(NULL);
    OK(cuDriverGetVersion(&version));
    CHECK_EQUAL(version, 12040);
    FAILS(cuCheckpointProcessLock(getpid(), NULL), CUDA_ERROR_NOT_SUPPORTED); /* of 12.8 */
    check_facts();
    check_lookup();
    check_errors();
    check_code();
    check_link();
    return 0;
}
