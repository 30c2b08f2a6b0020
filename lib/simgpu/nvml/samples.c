/* NVML: the samples of a device one by one, of its load and of what follows from it. */
#include "simgpu/nvml/usage.h"

static unsigned int sample_value(struct nvml_call *call, nvmlSamplingType_t type,
                                 uint64_t boundary) {
    unsigned int busy = usage_percent(call->in->state->gpus[call->index].samples, boundary, 1);

    switch (type) {
    case NVML_GPU_UTILIZATION_SAMPLES:
        return busy;
    case NVML_MEMORY_UTILIZATION_SAMPLES:
        return busy / 2;
    case NVML_TOTAL_POWER_SAMPLES:
        return nvml_milliwatts(call);
    case NVML_PROCESSOR_CLK_SAMPLES:
        return nvml_megahertz(call, NVML_CLOCK_SM);
    case NVML_MEMORY_CLK_SAMPLES:
        return nvml_megahertz(call, NVML_CLOCK_MEM);
    default:
        return 0; /* no encoder, decoder or module is ever busy */
    }
}

/* Whether a kind of sample is of the load. */
static bool is_load(nvmlSamplingType_t type) {
    return type == NVML_GPU_UTILIZATION_SAMPLES || type == NVML_MEMORY_UTILIZATION_SAMPLES ||
           type == NVML_ENC_UTILIZATION_SAMPLES || type == NVML_DEC_UTILIZATION_SAMPLES;
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
                                  unsigned long long since, nvmlValueType_t *value_type,
                                  unsigned int *count, nvmlSample_t *list) {
    uint64_t first;

    NVML_DEVICE(call, device)
    NVML_REQUIRE(value_type && count && type <= NVML_OFA_UTILIZATION_SAMPLES);
    if (is_load(type)) {
        NVML_NOT_DIVIDED(call)
    }
    usage_catch_up(&call);
    unsigned int n = usage_new_samples(&call, since, &first);
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (n == 0) {
        return NVML_ERROR_NOT_FOUND;
    }
    if (!list) { /* asks how many there may be */
        *count = USAGE_REACH + 1;
        return NVML_SUCCESS;
    }
    nvmlReturn_t result = nvml_room(count, list, n);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < n; i++) {
        list[i].timeStamp = nvml_stamp((first + i) * SG_SAMPLE_NS);
        list[i].sampleValue.ullVal = 0;
        list[i].sampleValue.uiVal = sample_value(&call, type, first + i);
    }
    return result;
}
