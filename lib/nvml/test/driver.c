#include "nvml/test/driver.h"

#include <stdio.h>
#include <string.h>

struct nvmlDevice_st {
    unsigned int index;
};

static struct nvmlDevice_st devices[FAKE_GPUS + 1] = {{0}, {1}, {2}, {3}, {FAKE_MIG}};
static struct fake_driver driver;

struct fake_driver *fake_driver(void) {
    return &driver;
}

nvmlDevice_t fake_handle(unsigned int index) {
    return &devices[index];
}

static nvmlReturn_t check(nvmlDevice_t device, const void *out) {
    if (driver.sessions == 0) {
        return NVML_ERROR_UNINITIALIZED;
    }
    if (device < devices || device > &devices[FAKE_MIG] || out == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    return device->index < FAKE_GPUS && driver.lost[device->index] ? NVML_ERROR_GPU_IS_LOST
                                                                   : NVML_SUCCESS;
}

/* A driver may reach its own public functions through the dynamic linker, and so through ours. */
static void call_itself(void) {
    unsigned int count = 0;
    nvmlDevice_t last = NULL;
    if (nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS || count != FAKE_GPUS ||
        nvmlDeviceGetHandleByIndex_v2(FAKE_GPUS - 1, &last) != NVML_SUCCESS ||
        last != &devices[FAKE_GPUS - 1]) {
        driver.met_ourselves = true;
    }
}

nvmlReturn_t nvmlInit_v2(void) {
    atomic_fetch_add(&driver.sessions, 1);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit(void) {
    return nvmlInit_v2();
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    return nvmlInit_v2();
}

nvmlReturn_t nvmlShutdown(void) {
    if (driver.sessions == 0) {
        return NVML_ERROR_UNINITIALIZED;
    }
    atomic_fetch_sub(&driver.sessions, 1);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    nvmlReturn_t result = check(&devices[FAKE_MIG], count);
    if (result == NVML_SUCCESS) {
        *count = FAKE_GPUS;
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) {
    return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    nvmlReturn_t result = check(&devices[index < FAKE_GPUS ? index : FAKE_MIG], device);
    if (result == NVML_SUCCESS && index >= FAKE_GPUS) {
        result = NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result == NVML_SUCCESS) {
        *device = &devices[index];
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static void spell(unsigned int index, char *text, size_t size) {
    unsigned char u[16];
    fake_uuid(index, u);
    snprintf(text, size, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             index == FAKE_MIG ? "MIG" : "GPU", u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7],
             u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned int length) {
    nvmlReturn_t result = check(device, text);
    if (result == NVML_SUCCESS) {
        spell(device->index, text, length);
    }
    return result;
}

/* The device whose key, printed by `format` or as its UUID, is `key`. */
static nvmlReturn_t find(const char *key, const char *prefix, nvmlDevice_t *device) {
    nvmlReturn_t result = check(&devices[FAKE_MIG], key ? (const void *)device : NULL);
    for (unsigned int index = 0; result == NVML_SUCCESS && index <= FAKE_MIG; index++) {
        char own[96];
        if (prefix == NULL) {
            spell(index, own, sizeof own);
        } else {
            snprintf(own, sizeof own, "%s%u", prefix, index);
        }
        if (strcmp(own, key) == 0) {
            result = check(&devices[index], key);
            *device = result == NVML_SUCCESS ? &devices[index] : *device;
            return result;
        }
    }
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : result;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    return find(uuid, NULL, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    return find(serial, "serial-", device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device) {
    return find(bus, "bus-", device);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    nvmlReturn_t result = check(device, index);
    if (result == NVML_SUCCESS) {
        *index = device->index == FAKE_MIG ? 0 : device->index;
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) {
    nvmlReturn_t result = check(mig, device);
    if (result == NVML_SUCCESS && mig->index != FAKE_MIG) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result == NVML_SUCCESS) {
        *device = &devices[1];
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *mig) {
    nvmlReturn_t result = check(device, mig);
    if (result == NVML_SUCCESS && (device->index != 1 || index != 0)) {
        return NVML_ERROR_NOT_FOUND;
    }
    if (result == NVML_SUCCESS) {
        *mig = &devices[FAKE_MIG];
    }
    return result;
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *count) {
    *count = 2;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    nvmlReturn_t result = check(device, memory);
    if (result == NVML_SUCCESS) {
        call_itself();
        unsigned long long used = device->index == FAKE_MIG ? 1 : driver.used[device->index];
        *memory = (nvmlMemory_t){.total = FAKE_TOTAL, .used = used, .free = FAKE_TOTAL - used};
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    nvmlReturn_t result = check(device, memory);
    if (result == NVML_SUCCESS) {
        unsigned long long used = device->index == FAKE_MIG ? 1 : driver.used[device->index];
        memory->total = FAKE_TOTAL;
        memory->reserved = 500ull << 20;
        memory->used = used;
        memory->free = FAKE_TOTAL - used - memory->reserved;
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
    nvmlReturn_t result = check(device, memory);
    if (result == NVML_SUCCESS) {
        *memory = (nvmlBAR1Memory_t){
            .bar1Total = 128ull << 30, .bar1Used = 1ull << 30, .bar1Free = 127ull << 30};
    }
    return result;
}

/* Not known to our description: found in the driver itself by whoever looks it up. */
__attribute__((visibility("default"))) nvmlReturn_t nvmlDeviceGetSomethingNewer(void);
nvmlReturn_t nvmlDeviceGetSomethingNewer(void) {
    return NVML_ERROR_IRQ_ISSUE;
}
