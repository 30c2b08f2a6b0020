/* Devices, whose facts must agree with each other. */
#include "test/api/api.h"

#include <stdio.h>
#include <string.h>

static void check_device(CUdevice device, int place) {
    char name[256] = "", short_name[5] = "1234", bus[32] = "", short_bus[4] = "123";
    CUuuid uuid = {{0}}, same = {{1}};
    CUdevice found = -5;
    size_t bytes = 0;
    int major = 0, minor = -1;

    SAME(device, place);
    OK(cuDeviceGetName, name, sizeof name, device);
    TRUE(name[0] && strlen(name) < sizeof name);
    OK(cuDeviceGetName, short_name, sizeof short_name, device);
    TRUE(memcmp(short_name, name, 4) == 0 && short_name[4] == 0);
    INVALID(cuDeviceGetName, NULL, 10, device);
    OK(cuDeviceGetPCIBusId, bus, sizeof bus, device);
    SAME(strlen(bus), 12);
    TRUE(bus[4] == ':' && bus[7] == ':' && bus[10] == '.');
    OK(cuDeviceGetByPCIBusId, &found, bus);
    SAME(found, device);
    INVALID(cuDeviceGetPCIBusId, NULL, 20, device);
    (void)short_bus;
    OK(cuDeviceGetUuid_v2, &uuid, device);
    OK(cuDeviceGetUuid, &same, device);
    TRUE(memcmp(&uuid, &same, sizeof uuid) == 0);
    INVALID(cuDeviceGetUuid_v2, NULL, device);
    OK(cuDeviceTotalMem_v2, &bytes, device);
    TRUE(bytes >= MIB);
    INVALID(cuDeviceTotalMem_v2, NULL, device);
    OK(cuDeviceComputeCapability, &major, &minor, device);
    TRUE(major >= 5 && minor >= 0);
    for (int other = 0; other < place; other++) {
        OK(cuDeviceGetUuid_v2, &same, other);
        TRUE(memcmp(&uuid, &same, sizeof uuid) != 0);
    }
}

void api_case_devices(void) {
    int count = 0, value = 77;
    CUdevice device = 77;
    CUuuid uuid;
    char text[64];
    size_t bytes;

    OK(cuInit, 0);
    OK(cuDeviceGetCount, &count);
    for (int i = 0; i < count; i++) {
        OK(cuDeviceGet, &device, i);
        check_device(device, i);
    }
    device = 77;
    INVALID(cuDeviceGet, NULL, 0);
    static const int wrong[] = {-1, 9999, 1 << 30};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet, &device, wrong[i]);
        SAME(device, 77);
        ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetName, text, 64, wrong[i]);
        ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetUuid_v2, &uuid, wrong[i]);
        ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDeviceTotalMem_v2, &bytes, wrong[i]);
        ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetPCIBusId, text, 64, wrong[i]);
        ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetAttribute, &value,
                CU_DEVICE_ATTRIBUTE_WARP_SIZE, wrong[i]);
        SAME(value, 77);
    }
    ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet, &device, count);
    INVALID(cuDeviceGetByPCIBusId, &device, "nonsense");
    ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetByPCIBusId, &device, "0000:fe:1f.0");
    INVALID(cuDeviceGetByPCIBusId, &device, NULL);
    INVALID(cuDeviceGetByPCIBusId, NULL, "0000:fe:1f.0");
    SAME(device, 77);
}

static int attribute(CUdevice_attribute what) {
    int value = -77;

    CU(cuDeviceGetAttribute)(&value, what, 0);
    return value;
}
#define IS(name) attribute(CU_DEVICE_ATTRIBUTE_##name)

static void check_bounds(void) {
    int major, minor, bus, device;
    char text[32];
    unsigned domain_found, bus_found, device_found;

    OK(cuDeviceComputeCapability, &major, &minor, 0);
    SAME(IS(COMPUTE_CAPABILITY_MAJOR), major);
    SAME(IS(COMPUTE_CAPABILITY_MINOR), minor);
    bus = IS(PCI_BUS_ID), device = IS(PCI_DEVICE_ID);
    OK(cuDeviceGetPCIBusId, text, sizeof text, 0);
    SAME(sscanf(text, "%x:%x:%x.0", &domain_found, &bus_found, &device_found), 3);
    SAME(bus_found, bus);
    SAME(device_found, device);
    SAME(domain_found, IS(PCI_DOMAIN_ID));
    SAME(IS(WARP_SIZE), 32);
    SAME(IS(MAX_THREADS_PER_BLOCK), 1024);
    SAME(IS(MAX_BLOCK_DIM_X), 1024);
    SAME(IS(MAX_BLOCK_DIM_Y), 1024);
    SAME(IS(MAX_BLOCK_DIM_Z), 64);
    SAME(IS(MAX_GRID_DIM_X), 2147483647);
    SAME(IS(MAX_GRID_DIM_Y), 65535);
    SAME(IS(MAX_GRID_DIM_Z), 65535);
    SAME(IS(TOTAL_CONSTANT_MEMORY), 65536);
    SAME(IS(MAX_SHARED_MEMORY_PER_BLOCK), 49152);
    TRUE(IS(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) >= 49152);
    TRUE(IS(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) >= IS(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
    TRUE(IS(MAX_THREADS_PER_MULTIPROCESSOR) >= 1024);
    SAME(IS(MAX_REGISTERS_PER_BLOCK), 65536);
    TRUE(IS(MULTIPROCESSOR_COUNT) > 0);
    TRUE(IS(CLOCK_RATE) > 0);
    TRUE(IS(MEMORY_CLOCK_RATE) > 0);
    TRUE(IS(L2_CACHE_SIZE) > 0);
    SAME(IS(TEXTURE_ALIGNMENT), 512);
    SAME(IS(UNIFIED_ADDRESSING), 1);
    SAME(IS(CONCURRENT_KERNELS), 1);
    TRUE(IS(ASYNC_ENGINE_COUNT) > 0);
    SAME(IS(STREAM_PRIORITIES_SUPPORTED), 1);
    SAME(IS(MEMORY_POOLS_SUPPORTED), 1);
    SAME(IS(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 1);
    SAME(IS(COMPUTE_PREEMPTION_SUPPORTED), 1);
    SAME(IS(COOPERATIVE_LAUNCH), 1);
    SAME(IS(COMPUTE_MODE), CU_COMPUTEMODE_DEFAULT);
}

void api_case_attributes(void) {
    static const struct {
        const char *name;
        CUdevice_attribute value;
    } all[] = {
#define CUDA_ATTRIBUTE(name, value) {#name, (CUdevice_attribute)(value)},
#include "abi/cuda/attributes.inc"
#undef CUDA_ATTRIBUTE
    };
    int count = 0, value, again;
    CUdevprop properties = {0};

    OK(cuInit, 0);
    OK(cuDeviceGetCount, &count);
    for (size_t i = 0; i < COUNT(all); i++) {
        value = again = -77;
        CUresult result = CU(cuDeviceGetAttribute)(&value, all[i].value, 0);
        if (result == CUDA_ERROR_INVALID_VALUE) { /* newer than the driver */
            NAMED(all[i].name, value, -77);
            continue;
        }
        NAMED(all[i].name, result, CUDA_SUCCESS);
        if (api_lacking_attribute(all[i].name, &again)) {
            NAMED(all[i].name, value, again);
            continue;
        }
        /* The same for every device of one kind that is asked twice. */
        CU(cuDeviceGetAttribute)(&again, all[i].value, 0);
        NAMED(all[i].name, again, value);
        NAMED(all[i].name, CU(cuDeviceGetAttribute)(&again, all[i].value, count - 1), CUDA_SUCCESS);
    }
    check_bounds();
    value = 77;
    INVALID(cuDeviceGetAttribute, &value, (CUdevice_attribute)9999, 0);
    INVALID(cuDeviceGetAttribute, &value, (CUdevice_attribute)0, 0);
    SAME(value, 77);
    INVALID(cuDeviceGetAttribute, NULL, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0);
    OK(cuDeviceGetProperties, &properties, 0);
    SAME(properties.maxThreadsPerBlock, IS(MAX_THREADS_PER_BLOCK));
    SAME(properties.maxThreadsDim[2], IS(MAX_BLOCK_DIM_Z));
    SAME(properties.maxGridSize[0], IS(MAX_GRID_DIM_X));
    SAME(properties.sharedMemPerBlock, IS(MAX_SHARED_MEMORY_PER_BLOCK));
    SAME(properties.SIMDWidth, IS(WARP_SIZE));
    SAME(properties.memPitch, IS(MAX_PITCH));
    SAME(properties.regsPerBlock, IS(MAX_REGISTERS_PER_BLOCK));
    SAME(properties.clockRate, IS(CLOCK_RATE));
}

void api_case_peers(void) {
    int count = 0, can = 77, supported = 77;
    CUcontext mine, theirs;
    CUdeviceptr here, there;

    OK(cuInit, 0);
    OK(cuDeviceGetCount, &count);
    ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDeviceCanAccessPeer, &can, 0, 9999);
    INVALID(cuDeviceCanAccessPeer, NULL, 0, 0);
    SAME(can, 77);
    if (count < 2) {
        return;
    }
    OK(cuDeviceCanAccessPeer, &can, 0, 1);
    OK(cuDeviceGetP2PAttribute, &supported, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1);
    SAME(can, supported);
    ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetP2PAttribute, &supported,
            CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0);
    OK(cuCtxCreate_v2, &theirs, 0, 1);
    OK(cuMemAlloc_v2, &there, 4096);
    OK(cuMemsetD8_v2, there, 7, 4096);
    OK(cuCtxCreate_v2, &mine, 0, 0);
    OK(cuMemAlloc_v2, &here, 4096);
    OK(cuMemcpyPeer, here, mine, there, theirs, 4096);
    TRUE(api_is_filled(here, 7, 4096));
    OK(cuMemsetD8_v2, here, 9, 4096);
    OK(cuMemcpyPeerAsync, there, theirs, here, mine, 100, NULL);
    OK(cuCtxSynchronize);
    OK(cuMemcpyPeer, here, mine, there, theirs, 4096);
    TRUE(api_is_filled(here, 9, 100) && api_is_filled(here + 100, 7, 3996));
    if (can) {
        OK(cuCtxEnablePeerAccess, theirs, 0);
        ANSWERS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess, theirs, 0);
        OK(cuCtxDisablePeerAccess, theirs);
    }
    ANSWERS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess, theirs);
    INVALID(cuCtxEnablePeerAccess, theirs, 5);
    OK(cuCtxDestroy_v2, mine);
    OK(cuCtxDestroy_v2, theirs);
}
