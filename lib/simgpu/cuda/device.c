/* Devices: names, addresses, relations. */
#include "simgpu/cuda/driver.h"

#include <stdio.h>
#include <string.h>

CUresult cuDeviceGetCount(int *count) {
    SG_READY();
    SG_REQUIRE(count, CUDA_ERROR_INVALID_VALUE);
    *count = sg_driver.device_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    SG_READY();
    SG_REQUIRE(device, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(sg_device(ordinal), CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return CUDA_SUCCESS;
}

/* The device that a call names, with the call's out-pointer checked. */
static CUresult named(CUdevice ordinal, const void *out, struct device **device) {
    SG_READY();
    SG_REQUIRE(out, CUDA_ERROR_INVALID_VALUE);
    *device = sg_device(ordinal);
    return *device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice ordinal) {
    struct device *device;

    SG_TRY(named(ordinal, name, &device));
    SG_REQUIRE(length > 0, CUDA_ERROR_INVALID_VALUE);
    snprintf(name, (size_t)length, "%s", device->model->name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice ordinal) {
    struct device *device;

    SG_TRY(named(ordinal, uuid, &device));
    memcpy(uuid->bytes, sg_driver.machine->gpus[device->gpu].uuid, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

/* The later form answers a MIG device's own. */
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice ordinal) {
    struct device *device;

    SG_TRY(named(ordinal, uuid, &device));
    memcpy(uuid->bytes, device->model->uuid, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

/* What CUDA calls total leaves out what the driver reserves. */
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal) {
    struct device *device;

    SG_TRY(named(ordinal, bytes, &device));
    *bytes = device->model->memory_bytes - device->model->reserved_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice ordinal) {
    size_t wide;

    SG_READY();
    SG_REQUIRE(bytes, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(cuDeviceTotalMem_v2(&wide, ordinal));
    *bytes = wide > UINT32_MAX ? UINT32_MAX : (unsigned)wide;
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice ordinal) {
    struct device *device;

    SG_TRY(named(ordinal, major, &device));
    SG_REQUIRE(minor, CUDA_ERROR_INVALID_VALUE);
    *major = (int)device->model->compute_major;
    *minor = (int)device->model->compute_minor;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice ordinal) {
    struct device *device;

    SG_TRY(named(ordinal, prop, &device));
    *prop = (CUdevprop){.maxThreadsPerBlock = 1024,
                        .maxThreadsDim = {1024, 1024, 64},
                        .maxGridSize = {2147483647, 65535, 65535},
                        .sharedMemPerBlock = 49152,
                        .totalConstantMemory = 65536,
                        .SIMDWidth = 32,
                        .memPitch = 2147483647,
                        .regsPerBlock = 65536,
                        .clockRate = (int)device->model->graphics_mhz * 1000,
                        .textureAlign = 512};
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice ordinal) {
    struct device *device;

    SG_TRY(named(ordinal, text, &device));
    SG_REQUIRE(length > 0, CUDA_ERROR_INVALID_VALUE);
    const sim_pci *at = &device->model->pci;
    snprintf(text, (size_t)length, "%04X:%02X:%02X.%X", at->domain, at->bus, at->device,
             at->function);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *ordinal, const char *text) {
    unsigned domain = 0, bus, slot, function = 0;

    SG_READY();
    SG_REQUIRE(ordinal && text, CUDA_ERROR_INVALID_VALUE);
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        SG_REQUIRE(sscanf(text, "%x:%x.%x", &bus, &slot, &function) >= 2, CUDA_ERROR_INVALID_VALUE);
    }
    for (int i = 0; i < sg_driver.device_count; i++) {
        const sim_pci *at = &sg_driver.devices[i].model->pci;
        if (at->domain == domain && at->bus == bus && at->device == slot) {
            *ordinal = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetLuid(char *luid, unsigned int *mask, CUdevice ordinal) {
    struct device *device;

    SG_TRY(named(ordinal, luid, &device));
    SG_REQUIRE(mask, CUDA_ERROR_INVALID_VALUE);
    return CUDA_ERROR_NOT_SUPPORTED; /* of Windows only */
}

static bool linked(uint32_t gpu, uint32_t peer) {
    const sim_gpu *model = &sg_driver.machine->gpus[gpu];

    for (uint32_t i = 0; i < model->link_count; i++) {
        if (model->links[i].remote == SIM_REMOTE_SWITCH ||
            (model->links[i].remote == SIM_REMOTE_GPU && model->links[i].remote_place == peer)) {
            return true;
        }
    }
    return false;
}

/* Over NVLink, or below one host bridge. */
bool sg_can_access(uint32_t gpu, uint32_t peer) {
    const sim_pci *a = &sg_driver.machine->gpus[gpu].pci, *b = &sg_driver.machine->gpus[peer].pci;

    return gpu != peer && (linked(gpu, peer) ||
                           strncmp(a->host_bridge, b->host_bridge, sizeof a->host_bridge) == 0);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice ordinal, CUdevice peer) {
    struct device *device;

    SG_TRY(named(ordinal, can, &device));
    SG_REQUIRE(sg_device(peer), CUDA_ERROR_INVALID_DEVICE);
    *can = sg_can_access(device->gpu, sg_device(peer)->gpu);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice ordinal,
                                 CUdevice peer) {
    struct device *device;

    SG_TRY(named(ordinal, value, &device));
    SG_REQUIRE(sg_device(peer) && peer != ordinal, CUDA_ERROR_INVALID_DEVICE);
    bool can = sg_can_access(device->gpu, sg_device(peer)->gpu);
    bool nvlink = linked(device->gpu, sg_device(peer)->gpu);
    switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = nvlink ? 0 : 1;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = can;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = nvlink;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
        *value = 0;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetExecAffinitySupport(int *supported, CUexecAffinityType type, CUdevice ordinal) {
    struct device *device;

    SG_TRY(named(ordinal, supported, &device));
    SG_REQUIRE(type == CU_EXEC_AFFINITY_TYPE_SM_COUNT, CUDA_ERROR_INVALID_VALUE);
    *supported = mps_is_client(); /* of others no context can be restricted */
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *elements, CUarray_format format,
                                            unsigned int channels, CUdevice ordinal) {
    struct device *device;

    (void)format;
    SG_TRY(named(ordinal, elements, &device));
    SG_REQUIRE(channels == 1 || channels == 2 || channels == 4, CUDA_ERROR_INVALID_VALUE);
    *elements = (size_t)1 << 28;
    return CUDA_SUCCESS;
}
