/* NVML: draw, warmth and clocks. They follow the utilisation between an idle and a full figure, so
 * that a program that plots them shows something plausible. */
#include "simgpu/nvml/call.h"

#define IDLE_CELSIUS 30u
#define BUSY_CELSIUS 75u
#define IDLE_MHZ 210u

static unsigned int idle_milliwatts(const sim_gpu *gpu) {
    return gpu->power_limit_watts * 1000u / 6u;
}

static unsigned int limit_milliwatts(const sim_gpu *gpu) {
    return gpu->power_limit_watts * 1000u;
}

unsigned int nvml_milliwatts(struct nvml_call *call) {
    unsigned int idle = idle_milliwatts(call->gpu);

    return idle + (limit_milliwatts(call->gpu) - idle) / 100u * nvml_gpu_percent(call);
}

unsigned int nvml_celsius(struct nvml_call *call) {
    return IDLE_CELSIUS + (BUSY_CELSIUS - IDLE_CELSIUS) * nvml_gpu_percent(call) / 100u;
}

/* Exact, unlike the draw: from the time that was truly busy. */
unsigned long long nvml_millijoules(struct nvml_call *call) {
    uint64_t idle = idle_milliwatts(call->gpu);
    uint64_t more = limit_milliwatts(call->gpu) - idle;
    uint64_t busy_us = call->in->state->gpus[call->index].busy_ns / 1000u;

    return idle * (sg_time(call->in) / 1000000000u) + more * busy_us / 1000000u;
}

/* Memory keeps its clock; the rest is as fast as can be while anything runs. */
unsigned int nvml_megahertz(struct nvml_call *call, nvmlClockType_t type) {
    if (type == NVML_CLOCK_MEM) {
        return call->gpu->memory_mhz;
    }
    return nvml_gpu_percent(call) > 0 ? call->gpu->graphics_mhz : IDLE_MHZ;
}

static unsigned int highest_megahertz(const sim_gpu *gpu, nvmlClockType_t type) {
    return type == NVML_CLOCK_MEM ? gpu->memory_mhz : gpu->graphics_mhz;
}

NVML_GETTER(nvmlDeviceGetPowerUsage, unsigned int, nvml_milliwatts(&call))
NVML_GETTER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, nvml_millijoules(&call))
NVML_GETTER(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
NVML_GETTER(nvmlDeviceGetPowerManagementLimit, unsigned int, limit_milliwatts(call.gpu))
NVML_GETTER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, limit_milliwatts(call.gpu))
NVML_GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned int, limit_milliwatts(call.gpu))
NVML_GETTER(nvmlDeviceGetPerformanceState, nvmlPstates_t, NVML_PSTATE_0)
NVML_GETTER(nvmlDeviceGetPowerState, nvmlPstates_t, NVML_PSTATE_0)
/* Bit 0 says idle; nothing else ever holds the clocks back. */
NVML_GETTER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long,
            nvml_gpu_percent(&call) == 0 ? 1 : 0)
NVML_GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long,
            nvml_gpu_percent(&call) == 0 ? 1 : 0)
NVML_GETTER(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, 1)
NVML_GETTER(nvmlDeviceGetSupportedClocksThrottleReasons, unsigned long long, 1)

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *least,
                                                          unsigned int *most) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(least && most);
    *least = limit_milliwatts(call.gpu) / 2;
    *most = limit_milliwatts(call.gpu);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                      unsigned int *celsius) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(celsius && sensor == NVML_TEMPERATURE_GPU);
    *celsius = nvml_celsius(&call);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(temperature);
    if (temperature->version != NVML_STRUCT_VERSION(nvmlTemperature_t, 1)) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    NVML_REQUIRE(temperature->sensorType == NVML_TEMPERATURE_GPU);
    temperature->temperature = (int)nvml_celsius(&call);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device,
                                               nvmlTemperatureThresholds_t threshold,
                                               unsigned int *celsius) {
    static const unsigned int degrees[] = {
        [NVML_TEMPERATURE_THRESHOLD_SHUTDOWN] = 92,
        [NVML_TEMPERATURE_THRESHOLD_SLOWDOWN] = 89,
        [NVML_TEMPERATURE_THRESHOLD_MEM_MAX] = 95,
        [NVML_TEMPERATURE_THRESHOLD_GPU_MAX] = 85,
    };

    NVML_DEVICE(call, device)
    NVML_REQUIRE(celsius);
    if ((size_t)threshold >= sizeof degrees / sizeof degrees[0]) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *celsius = degrees[threshold];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(mhz && type <= NVML_CLOCK_VIDEO);
    *mhz = nvml_megahertz(&call, type);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type,
                                       unsigned int *mhz) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(mhz && type <= NVML_CLOCK_VIDEO);
    *mhz = highest_megahertz(call.gpu, type);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, nvmlClockType_t type,
                                            unsigned int *mhz) {
    return nvmlDeviceGetMaxClockInfo(device, type, mhz);
}

nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, nvmlClockType_t type,
                                                   unsigned int *mhz) {
    return nvmlDeviceGetMaxClockInfo(device, type, mhz);
}

nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, nvmlClockType_t type,
                                                unsigned int *mhz) {
    return nvmlDeviceGetMaxClockInfo(device, type, mhz);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t id,
                                unsigned int *mhz) {
    if (id == NVML_CLOCK_ID_CURRENT) {
        return nvmlDeviceGetClockInfo(device, type, mhz);
    }
    return nvmlDeviceGetMaxClockInfo(device, type, mhz);
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count,
                                                unsigned int *mhz) {
    NVML_DEVICE(call, device)
    nvmlReturn_t result = nvml_room(count, mhz, 1);
    if (result == NVML_SUCCESS) {
        *mhz = call.gpu->memory_mhz;
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memory_mhz,
                                                  unsigned int *count, unsigned int *mhz) {
    NVML_DEVICE(call, device)
    if (memory_mhz != call.gpu->memory_mhz) {
        return NVML_ERROR_NOT_FOUND;
    }
    nvmlReturn_t result = nvml_room(count, mhz, 2);
    if (result == NVML_SUCCESS) {
        mhz[0] = call.gpu->graphics_mhz;
        mhz[1] = IDLE_MHZ;
    }
    return result;
}

/* Copies are not timed on the bus. */
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter,
                                         unsigned int *kilobytes) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(kilobytes && counter <= NVML_PCIE_UTIL_RX_BYTES);
    *kilobytes = 0;
    return NVML_SUCCESS;
}

/* Cards of servers are cooled by the server. */
NVML_GETTER(nvmlDeviceGetNumFans, unsigned int, 0)

nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, nvmlPerfPolicyType_t policy,
                                          nvmlViolationTime_t *time) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(time && policy <= NVML_PERF_POLICY_TOTAL_BASE_CLOCKS);
    time->referenceTime = nvml_stamp(sg_now()) * 1000u;
    time->violationTime = 0;
    return NVML_SUCCESS;
}
