/* NVML: a device's NVLinks. */
#include "simgpu/nvml/call.h"

/* NVSwitches as the GPUs of their time had them: device 1af1 with Ampere, 22a3 with Hopper. */
static uint32_t switch_device(const sim_gpu *gpu) {
    return gpu->architecture >= NVML_DEVICE_ARCH_HOPPER ? 0x22a310deu : 0x1af110deu;
}

/* Looks a link up: a GPU without any does not support the question. */
static nvmlReturn_t find_link(const struct nvml_call *call, unsigned int number,
                              const sim_link **link) {
    if (number >= NVML_NVLINK_MAX_LINKS) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (call->gpu->link_count == 0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    if (number >= call->gpu->link_count) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *link = &call->gpu->links[number];
    return NVML_SUCCESS;
}

#define NVML_LINK(call, device, number, link)                                                      \
    NVML_DEVICE(call, device)                                                                      \
    const sim_link *link;                                                                          \
    {                                                                                              \
        nvmlReturn_t found = find_link(&call, number, &link);                                      \
        if (found != NVML_SUCCESS)                                                                 \
            return found;                                                                          \
    }

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int number,
                                      nvmlEnableState_t *state) {
    NVML_LINK(call, device, number, link)
    NVML_REQUIRE(state);
    *state = link->remote == SIM_REMOTE_NONE ? NVML_FEATURE_DISABLED : NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

/* Version 2 came with Volta, 3 with Ampere, 4 with Hopper, 5 with Blackwell. */
nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int number,
                                        unsigned int *version) {
    NVML_LINK(call, device, number, link)
    NVML_REQUIRE(version && link);
    switch (call.gpu->architecture) {
    case NVML_DEVICE_ARCH_BLACKWELL:
        *version = 5;
        break;
    case NVML_DEVICE_ARCH_HOPPER:
        *version = 4;
        break;
    case NVML_DEVICE_ARCH_AMPERE:
        *version = 3;
        break;
    default:
        *version = 2;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int number,
                                           nvmlNvLinkCapability_t capability, unsigned int *has) {
    NVML_LINK(call, device, number, link)
    NVML_REQUIRE(has && capability <= NVML_NVLINK_CAP_VALID);
    *has = link->remote != SIM_REMOTE_NONE &&
           (capability == NVML_NVLINK_CAP_P2P_SUPPORTED ||
            capability == NVML_NVLINK_CAP_P2P_ATOMICS || capability == NVML_NVLINK_CAP_VALID);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int number,
                                                 nvmlIntNvLinkDeviceType_t *type) {
    NVML_LINK(call, device, number, link)
    NVML_REQUIRE(type);
    if (link->remote == SIM_REMOTE_NONE) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *type = link->remote == SIM_REMOTE_SWITCH ? NVML_NVLINK_DEVICE_TYPE_SWITCH
                                              : NVML_NVLINK_DEVICE_TYPE_GPU;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int number,
                                                 nvmlPciInfo_t *info) {
    NVML_LINK(call, device, number, link)
    NVML_REQUIRE(info);
    if (link->remote == SIM_REMOTE_NONE) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    if (link->remote == SIM_REMOTE_GPU) {
        const sim_gpu *gpu = &call.machine->gpus[link->remote_place];
        nvml_pci_info(&gpu->pci, gpu->device_id, gpu->subsystem_id, info);
        return NVML_SUCCESS;
    }
    /* The machine file gives NVSwitches no address: they get a domain of their own. */
    sim_pci at = {.domain = 0x10, .bus = link->remote_place + 1};
    nvml_pci_info(&at, switch_device(call.gpu), 0, info);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int number,
                                              nvmlPciInfo_t *info) {
    return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, number, info);
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int number,
                                             nvmlNvLinkErrorCounter_t counter,
                                             unsigned long long *count) {
    NVML_LINK(call, device, number, link)
    NVML_REQUIRE(count && link && counter <= NVML_NVLINK_ERROR_DL_ECC_DATA);
    *count = 0;
    return NVML_SUCCESS;
}

/* The GPUs behind one machine's NVSwitches are a clique of their own in no cluster. Known to
 * drivers of Hopper and later only; state 3 says that the fabric is up. */
nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(info);
    if (call.gpu->architecture < NVML_DEVICE_ARCH_HOPPER || call.machine->nvswitch_count == 0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *info = (nvmlGpuFabricInfo_t){.status = NVML_SUCCESS, .state = 3};
    return NVML_SUCCESS;
}
