/* NVML: what a device is and where it sits on its bus. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "simgpu/nvml/call.h"

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    char text[sizeof(((const sim_gpu *)0)->name) + 44], instance[40];

    NVML_ANY_DEVICE(call, device)
    if (call.place == 0) {
        return nvml_text(name, length, call.gpu->name);
    }
    sg_mig_name(call.in, call.place, instance);
    snprintf(text, sizeof text, "%s %s", call.gpu->name, instance);
    return nvml_text(name, length, text);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length) {
    NVML_DEVICE(call, device)
    return nvml_text(serial, length, call.gpu->serial);
}

NVML_GETTER(nvmlDeviceGetBrand, nvmlBrandType_t, (nvmlBrandType_t)call.gpu->brand)
NVML_GETTER(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, call.gpu->architecture)
NVML_GETTER(nvmlDeviceGetBusType, nvmlBusType_t, NVML_BUS_TYPE_PCIE)
NVML_GETTER(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t,
            NVML_GPU_VIRTUALIZATION_MODE_NONE)
/* One board per GPU, told apart by its bus. */
NVML_GETTER(nvmlDeviceGetBoardId, unsigned int, call.gpu->pci.domain << 16 | call.gpu->pci.bus << 8)
NVML_GETTER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, call.gpu->pcie_generation)
NVML_GETTER(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, call.gpu->pcie_width)
NVML_GETTER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, call.gpu->pcie_generation)
NVML_GETTER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned int, call.gpu->pcie_generation)
NVML_GETTER(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, call.gpu->pcie_width)
NVML_GETTER(nvmlDeviceGetPcieReplayCounter, unsigned int, 0)
/* MB/s of one lane: 2.5, 5, 8, 16, 32 GT/s by generation. */
NVML_GETTER(nvmlDeviceGetPcieSpeed, unsigned int,
            call.gpu->pcie_generation < 3 ? 2500u * call.gpu->pcie_generation
                                          : 8000u << (call.gpu->pcie_generation - 3))

/* FP32 lanes of a multiprocessor: 64 up to compute capability 8.0, 128 from 8.6. */
static unsigned int lanes(const sim_gpu *gpu) {
    return gpu->compute_major * 10 + gpu->compute_minor > 80 ? 128 : 64;
}
NVML_GETTER(nvmlDeviceGetNumGpuCores, unsigned int, call.gpu->multiprocessors *lanes(call.gpu))

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    NVML_ANY_DEVICE(call, device)
    NVML_REQUIRE(major && minor);
    *major = (int)call.gpu->compute_major;
    *minor = (int)call.gpu->compute_minor;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length) {
    NVML_DEVICE(call, device)
    return nvml_text(version, length, "92.00.36.00.01");
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device, nvmlDevice_t other, int *same) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(same && nvml_handle_index(other) < call.machine->gpu_count);
    *same = device == other;
    return NVML_SUCCESS;
}

void nvml_pci_info(const sim_pci *at, uint32_t device_id, uint32_t subsystem_id,
                   nvmlPciInfo_t *info) {
    memset(info, 0, sizeof *info);
    /* The older form has room for four digits of the domain only. */
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.%X", at->domain & 0xffff,
             at->bus & 0xff, at->device & 0xff, at->function & 0xf);
    snprintf(info->busId, sizeof info->busId, "%08X:%02X:%02X.%X", at->domain, at->bus & 0xff,
             at->device & 0xff, at->function & 0xf);
    info->domain = at->domain;
    info->bus = at->bus;
    info->device = at->device;
    info->pciDeviceId = device_id;
    info->pciSubSystemId = subsystem_id;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(info);
    nvml_pci_info(&call.gpu->pci, call.gpu->device_id, call.gpu->subsystem_id, info);
    return NVML_SUCCESS;
}

/* The two older entries fill a structure of 52 bytes whatever the header of the caller says. */
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *info) {
    nvmlPciInfo_v2_t old = {0};
    nvmlPciInfo_t now;

    NVML_DEVICE(call, device)
    NVML_REQUIRE(info);
    nvml_pci_info(&call.gpu->pci, call.gpu->device_id, call.gpu->subsystem_id, &now);
    memcpy(old.busId, now.busIdLegacy, sizeof old.busId);
    old.domain = now.domain;
    old.bus = now.bus;
    old.device = now.device;
    old.pciDeviceId = now.pciDeviceId;
    old.pciSubSystemId = now.pciSubSystemId;
    memcpy((void *)info, &old, sizeof old);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *info) {
    return nvmlDeviceGetPciInfo_v2(device, info);
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *info) {
    nvmlPciInfo_t now;

    NVML_DEVICE(call, device)
    NVML_REQUIRE(info);
    if (info->version != NVML_STRUCT_VERSION(nvmlPciInfoExt_t, 1)) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    nvml_pci_info(&call.gpu->pci, call.gpu->device_id, call.gpu->subsystem_id, &now);
    info->domain = now.domain;
    info->bus = now.bus;
    info->device = now.device;
    info->pciDeviceId = now.pciDeviceId;
    info->pciSubSystemId = now.pciSubSystemId;
    info->baseClass = 0x03; /* display controller, 3D: PCI code and ID assignment specification */
    info->subClass = 0x02;
    memcpy(info->busId, now.busId, sizeof info->busId);
    return NVML_SUCCESS;
}
