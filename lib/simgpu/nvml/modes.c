/* NVML: modes, of which only the compute mode changes from a server's default, and memory errors, of which there are
 * none. */
#include "simgpu/nvml/call.h"

_Static_assert((int)SG_COMPUTE_DEFAULT == NVML_COMPUTEMODE_DEFAULT &&
                   (int)SG_COMPUTE_PROHIBITED == NVML_COMPUTEMODE_PROHIBITED &&
                   (int)SG_COMPUTE_EXCLUSIVE_PROCESS == NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
               "the machine's numbers are NVML's");

NVML_GETTER(nvmlDeviceGetComputeMode, nvmlComputeMode_t,
            (nvmlComputeMode_t)sg_compute_mode(call.in, call.index))

/* In MIG mode the compute mode is one of instances, of which there are none. */
nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(mode <= NVML_COMPUTEMODE_EXCLUSIVE_PROCESS);
    if (mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD || sg_mig_on(call.in, call.index)) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    if (!sg_is_owner(call.in)) {
        return NVML_ERROR_NO_PERMISSION;
    }
    sg_compute_mode_set(call.in, call.index, (enum sg_compute_mode)mode);
    return NVML_SUCCESS;
}

NVML_GETTER(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
NVML_GETTER(nvmlDeviceGetDisplayMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
NVML_GETTER(nvmlDeviceGetDisplayActive, nvmlEnableState_t, NVML_FEATURE_DISABLED)
NVML_GETTER(nvmlDeviceGetAccountingMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
NVML_GETTER(nvmlDeviceGetAccountingBufferSize, unsigned int, 4000)
NVML_GETTER(nvmlDeviceGetRetiredPagesPendingStatus, nvmlEnableState_t, NVML_FEATURE_DISABLED)

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
                                         unsigned int *pids) {
    NVML_DEVICE(call, device)
    return nvml_room(count, pids, 0);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current,
                                  nvmlEnableState_t *pending) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(current && pending);
    if (!call.gpu->ecc) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *current = *pending = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    nvmlEnableState_t pending;

    return nvmlDeviceGetEccMode(device, mode, &pending);
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                         nvmlEccCounterType_t counter, unsigned long long *count) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(count && type <= NVML_MEMORY_ERROR_TYPE_UNCORRECTED &&
                 counter <= NVML_AGGREGATE_ECC);
    *count = 0;
    return call.gpu->ecc ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                             nvmlEccCounterType_t counter,
                                             nvmlMemoryLocation_t location,
                                             unsigned long long *count) {
    NVML_REQUIRE(location <= NVML_MEMORY_LOCATION_SRAM);
    return nvmlDeviceGetTotalEccErrors(device, type, counter, count);
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause,
                                       unsigned int *count, unsigned long long *addresses) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(cause <= NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR);
    return nvml_room(count, addresses, 0);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable,
                                       unsigned int *uncorrectable, unsigned int *pending,
                                       unsigned int *failed) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(correctable && uncorrectable && pending && failed);
    if (call.gpu->architecture < NVML_DEVICE_ARCH_AMPERE) {
        return NVML_ERROR_NOT_SUPPORTED; /* they retire pages instead */
    }
    *correctable = *uncorrectable = *pending = *failed = 0;
    return NVML_SUCCESS;
}

/* From Turing on the GPU runs part of the driver itself. */
nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int *enabled,
                                          unsigned int *by_default) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(enabled && by_default);
    *enabled = *by_default = 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version) {
    NVML_DEVICE(call, device)
    return nvml_text(version, NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE, call.machine->driver_version);
}

nvmlReturn_t nvmlDeviceGetAPIRestriction(nvmlDevice_t device, nvmlRestrictedAPI_t api,
                                         nvmlEnableState_t *restricted) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(restricted && api <= NVML_RESTRICTED_API_SET_AUTO_BOOSTED_CLOCKS);
    *restricted = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}
