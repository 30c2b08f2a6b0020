/* Utilisation by NVML against work of known length. */
#include "abi/generated/nvml_functions.h"
#include "simgpu/machine/test/setting.h"

#define LONG_NS 60000000000u

static nvmlDevice_t device;

static unsigned int gpu_percent(void) {
    nvmlUtilization_t rates;

    CHECK_EQUAL(nvmlDeviceGetUtilizationRates(device, &rates), NVML_SUCCESS);
    CHECK(rates.gpu <= 100 && rates.memory <= rates.gpu);
    return rates.gpu;
}

/* The percentage of one process in the newest window; 0 when it is not listed. */
static unsigned int process_percent(pid_t process) {
    nvmlProcessUtilizationSample_t list[8];
    unsigned int count = 8;
    nvmlReturn_t result = nvmlDeviceGetProcessUtilization(device, list, &count, 0);

    if (result == NVML_ERROR_NOT_FOUND) {
        return 0;
    }
    CHECK_EQUAL(result, NVML_SUCCESS);
    for (unsigned int i = 0; i < count; i++) {
        if (list[i].pid == (unsigned int)process) {
            return list[i].smUtil;
        }
    }
    return 0;
}

static void check_samples(void) {
    nvmlSample_t list[64];
    nvmlValueType_t type;
    unsigned int count = 64;

    CHECK_EQUAL(nvmlDeviceGetSamples(device, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, list),
                NVML_SUCCESS);
    CHECK(count > 1 && type == NVML_VALUE_TYPE_UNSIGNED_INT);
    CHECK_EQUAL(list[count - 1].sampleValue.uiVal, 100);
    for (unsigned int i = 1; i < count; i++) {
        CHECK(list[i].timeStamp > list[i - 1].timeStamp);
    }
    unsigned long long last = list[count - 2].timeStamp + 10;
    CHECK_EQUAL(
        nvmlDeviceGetSamples(device, NVML_GPU_UTILIZATION_SAMPLES, last, &type, &count, list),
        NVML_SUCCESS);
    CHECK(count > 0);
    for (unsigned int i = 0; i < count; i++) {
        CHECK(list[i].timeStamp > last);
    }
}

/* One process alone has all of the GPU, two have half each: the slices are equal. */
static void check_shares(void) {
    pid_t one = setting_process("a", 0, 1, LONG_NS);
    EVENTUALLY(gpu_percent() == 100);
    EVENTUALLY(process_percent(one) == 100);
    check_samples();
    pid_t two = setting_process("b", 0, 1, LONG_NS);
    EVENTUALLY(process_percent(two) >= 49 && process_percent(one) <= 51);
    CHECK_EQUAL(gpu_percent(), 100);
    setting_kill(one);
    EVENTUALLY(process_percent(two) == 100);
    CHECK_EQUAL(process_percent(one), 0);
    setting_kill(two);
    EVENTUALLY(gpu_percent() == 0);
}

static void check_sensors(void) {
    unsigned int idle, idle_celsius, busy, mhz;
    unsigned long long before, after;

    CHECK_EQUAL(nvmlDeviceGetPowerUsage(device, &idle), NVML_SUCCESS);
    CHECK_EQUAL(nvmlDeviceGetTemperature(device, NVML_TEMPERATURE_GPU, &idle_celsius),
                NVML_SUCCESS);
    CHECK_EQUAL(nvmlDeviceGetTotalEnergyConsumption(device, &before), NVML_SUCCESS);
    pid_t process = setting_process("a", 0, 1, LONG_NS);
    EVENTUALLY(nvmlDeviceGetPowerUsage(device, &busy) == NVML_SUCCESS && busy >= 5 * idle);
    CHECK(busy <= 300000);
    CHECK_EQUAL(nvmlDeviceGetTemperature(device, NVML_TEMPERATURE_GPU, &busy), NVML_SUCCESS);
    CHECK(busy > idle_celsius);
    CHECK_EQUAL(nvmlDeviceGetClockInfo(device, NVML_CLOCK_SM, &mhz), NVML_SUCCESS);
    CHECK_EQUAL(mhz, 1400);
    CHECK_EQUAL(nvmlDeviceGetTotalEnergyConsumption(device, &after), NVML_SUCCESS);
    CHECK(after > before);
    setting_kill(process);
}

/* On a virtual clock, to the percent: of the time truly executed, rounded down, the lag later. */
static void check_exact(void) {
    const uint64_t lag = 300000000;
    nvmlProcessUtilizationInfo_v1_t list[8];
    nvmlProcessesUtilizationInfo_t info = {
        .version = NVML_STRUCT_VERSION(nvmlProcessesUtilizationInfo_t, 1),
        .processSamplesCount = 8,
        .procUtilArray = list};
    sim_machine machine;
    struct sg_instance in;

    setting_describe(&machine);
    machine.virtual_clock = 1;
    machine.sample_lag_ns = lag;
    CHECK_EQUAL(sg_open(&in, setting_make(&machine), "", false), 0);
    CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
    pid_t one = setting_process("a", 0, 1, 100000000), two = setting_process("b", 0, 1, 20000000);
    sg_clock_move(&in, SG_SAMPLE_NS + lag - 1);
    CHECK_EQUAL(gpu_percent(), 0);
    CHECK_EQUAL(process_percent(one), 0);
    sg_clock_move(&in, 1);
    CHECK_EQUAL(gpu_percent(), 71);
    CHECK_EQUAL(process_percent(one), 59);
    CHECK_EQUAL(process_percent(two), 11);
    CHECK_EQUAL(nvmlDeviceGetProcessesUtilizationInfo(device, &info), NVML_SUCCESS);
    CHECK_EQUAL(info.processSamplesCount, 2);
    CHECK(list[0].pid == (unsigned)one && list[0].smUtil == 59 && list[1].smUtil == 11);
    sg_clock_move(&in, SG_SAMPLE_NS);
    CHECK_EQUAL(gpu_percent(), 0);
    setting_kill(one);
    setting_kill(two);
    CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
    sg_close(&in);
}

int main(void) {
    sim_machine machine;

    setting_describe(&machine);
    setting_make(&machine);
    CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
    CHECK_EQUAL(gpu_percent(), 0);
    check_shares();
    check_sensors();
    CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
    check_exact();
    return 0;
}
