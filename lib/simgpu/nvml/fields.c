/* NVML: figures asked for by number, several at once. */
#include "simgpu/nvml/call.h"

static void set_uint(nvmlFieldValue_t *field, unsigned int value) {
    field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    field->value.uiVal = value;
}

static void set_ull(nvmlFieldValue_t *field, unsigned long long value) {
    field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    field->value.ullVal = value;
}

/* MB/s of one NVLink in one direction: 25 GB/s with Volta to Hopper, 50 with Blackwell. */
static unsigned int link_speed(const sim_gpu *gpu) {
    return gpu->architecture >= NVML_DEVICE_ARCH_BLACKWELL ? 50000 : 25000;
}

static unsigned int active_links(const sim_gpu *gpu, uint32_t remote) {
    unsigned int n = 0;

    for (uint32_t i = 0; i < gpu->link_count; i++) {
        n += remote == SIM_REMOTE_NONE ? gpu->links[i].remote != SIM_REMOTE_NONE
                                       : gpu->links[i].remote == remote;
    }
    return n;
}

/* Fields of the NVLink whose number is in the scope. */
static nvmlReturn_t link_field(struct nvml_call *call, nvmlFieldValue_t *field) {
    if (call->gpu->link_count == 0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    if (field->scopeId >= call->gpu->link_count) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    bool active = call->gpu->links[field->scopeId].remote != SIM_REMOTE_NONE;
    if (field->fieldId == NVML_FI_DEV_NVLINK_GET_STATE) {
        set_uint(field, active);
    } else {
        set_uint(field, active ? link_speed(call->gpu) : 0);
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t power_field(struct nvml_call *call, nvmlFieldValue_t *field) {
    unsigned int limit = call->gpu->power_limit_watts * 1000u;

    switch (field->fieldId) {
    case NVML_FI_DEV_POWER_AVERAGE:
    case NVML_FI_DEV_POWER_INSTANT:
        set_uint(field, nvml_milliwatts(call));
        return NVML_SUCCESS;
    case NVML_FI_DEV_POWER_MIN_LIMIT:
        set_uint(field, limit / 2);
        return NVML_SUCCESS;
    default: /* the greatest, the usual and the present limit are one */
        set_uint(field, limit);
        return NVML_SUCCESS;
    }
}

static nvmlReturn_t answer(struct nvml_call *call, nvmlFieldValue_t *field) {
    switch (field->fieldId) {
    case NVML_FI_DEV_ECC_CURRENT:
    case NVML_FI_DEV_ECC_PENDING:
        set_uint(field, call->gpu->ecc);
        return NVML_SUCCESS;
    case NVML_FI_DEV_MEMORY_TEMP:
        set_uint(field, nvml_celsius(call));
        return NVML_SUCCESS;
    case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
        set_ull(field, nvml_millijoules(call));
        return NVML_SUCCESS;
    case NVML_FI_DEV_NVLINK_LINK_COUNT:
        set_uint(field, call->gpu->link_count);
        return NVML_SUCCESS;
    case NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON:
        if (call->gpu->link_count == 0) {
            return NVML_ERROR_NOT_SUPPORTED;
        }
        set_uint(field, link_speed(call->gpu));
        return NVML_SUCCESS;
    case NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT:
        set_uint(field, active_links(call->gpu, SIM_REMOTE_SWITCH));
        return NVML_SUCCESS;
    case NVML_FI_DEV_NVLINK_GET_STATE:
    case NVML_FI_DEV_NVLINK_GET_SPEED:
        return link_field(call, field);
    case NVML_FI_DEV_PCIE_REPLAY_COUNTER:
        set_uint(field, 0);
        return NVML_SUCCESS;
    case NVML_FI_DEV_POWER_AVERAGE:
    case NVML_FI_DEV_POWER_INSTANT:
    case NVML_FI_DEV_POWER_MIN_LIMIT:
    case NVML_FI_DEV_POWER_MAX_LIMIT:
    case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
    case NVML_FI_DEV_POWER_CURRENT_LIMIT:
        return power_field(call, field);
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}

/* Succeeds as a call; whether a field has a value is said in the field. */
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *fields) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(fields && count > 0);
    for (int i = 0; i < count; i++) {
        fields[i].value.ullVal = 0;
        fields[i].timestamp = (long long)nvml_stamp(sg_now());
        fields[i].latencyUsec = 0;
        fields[i].nvmlReturn = answer(&call, &fields[i]);
    }
    return NVML_SUCCESS;
}
