/* A driver's management library with two GPUs, or what -DMISSING_... leaves of one. */
#include <stdio.h>
#include <string.h>

#define API __attribute__((visibility("default"))) int

static int gpus[2];
static int times; /* that it was initialised */

#ifndef MISSING_INIT
API nvmlInit_v2(void) {
    times++;
#ifdef NOT_LOADED
    return 9;
#endif
    return 0;
}
#endif
API nvmlShutdown(void) {
    return 0;
}
API nvmlSystemGetDriverVersion(char *text, unsigned length) {
    snprintf(text, length, "550.1");
    return 0;
}
#ifndef MISSING_OPTIONAL
API nvmlSystemGetCudaDriverVersion(int *version) {
    *version = 12040;
    return 0;
}
#endif
API nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 2;
    return 0;
}
API nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
#ifdef COMES_BACK
    if (times > 1) {
        index = 1 - index; /* numbered otherwise than before */
    }
#endif
    *device = &gpus[index];
    return index < 2 ? 0 : 2;
}
API nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    for (int i = 0; i < 2; i++) {
        if (strcmp(uuid, i ? "GPU-1" : "GPU-0") == 0) {
            *device = &gpus[i];
            return 0;
        }
    }
    return 6;
}
API nvmlDeviceGetIndex(void *device, unsigned *index) {
    *index = device == &gpus[1];
    return 0;
}
API nvmlDeviceGetName(void *device, char *text, unsigned length) {
    snprintf(text, length, "Double %d", device == &gpus[1]);
    return 0;
}
#ifndef MISSING_UUID
API nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
    snprintf(text, length, "GPU-%d", device == &gpus[1]);
#ifdef BROKEN_GPU
    return device == &gpus[1] ? 999 : 0;
#endif
#ifdef BROKEN_GPUS
    return 999;
#endif
#ifdef LOST_GPU
    return device == &gpus[1] ? 15 : 0;
#endif
    return 0;
}
#endif

/* busIdLegacy, domain, bus, device, pciDeviceId, pciSubSystemId, busId */
struct pci {
    char legacy[16];
    unsigned numbers[5];
    char bus[32];
};
API nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus, sizeof pci->bus, "00000000:%02X:00.0", 0x3b + (device == &gpus[1]));
    return 0;
}

/* What a GPU answers that is asked for itself: GPU 1 may be out of order once its architecture was
 * asked. */
static int sick;
static int state(void *device) {
    if (device != &gpus[1] || !sick) {
        return 0;
    }
#ifdef SICK
    return SICK;
#endif
#ifdef COMES_BACK
    return times > 1 ? 0 : 15;
#endif
    return 0;
}

struct memory {
    unsigned long long total, free, used;
};
API nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    *memory = (struct memory){1000, 600, 400};
    return state(device);
}
#ifndef MISSING_OPTIONAL
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
API nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory) {
    memory->total = 1000;
    memory->reserved = 100;
    memory->free = 600;
    memory->used = 300;
#ifdef MEMORY_V2_REFUSED
    return 3; /* NVML_ERROR_NOT_SUPPORTED */
#endif
    return state(device);
}
#endif

#ifndef MISSING_OPTIONAL
API nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
#ifdef MIG_MODE
    *current = device == &gpus[1];
    *pending = 1;
    return 0;
#else
    *current = *pending = 1;
    return device ? 3 : 0; /* NVML_ERROR_NOT_SUPPORTED */
#endif
}
#endif

struct process {
    unsigned pid;
    unsigned long long used;
    unsigned instance, compute;
};
static int list(unsigned *count, struct process *out, const struct process *from, unsigned n) {
    unsigned room = *count;
    *count = n;
    if (room < n) {
        return 7;
    }
    memcpy(out, from, n * sizeof *out);
    return 0;
}
API nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *out) {
    (void)device;
#ifdef MIG_MODE
    const struct process from[] = {
        {11, 5000, 1, 0}, {12, 30, 1, 0}, {11, 70, 2, 0}, {12, ~0ull, 2, 1}, {11, 70, 2, 0}};
#else
    const struct process from[] = {{11, 5000, 0, 0}, {12, ~0ull, 0, 0}};
#endif
    return list(count, out, from, sizeof from / sizeof from[0]);
}
#ifndef MISSING_OPTIONAL
API nvmlDeviceGetGraphicsRunningProcesses(void *device, unsigned *count, struct process *out) {
    (void)device;
    return list(count, out, 0, 0);
}
API nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, struct process *out) {
    (void)device;
    const struct process from[] = {{11, 5000, 0, 0}, {13, 7, 0, 0}};
    return list(count, out, from, 2);
}
#endif

#ifndef MISSING_OPTIONAL
struct sample {
    unsigned pid;
    unsigned long long at;
    unsigned sm, memory, encoder, decoder;
};
API nvmlDeviceGetProcessUtilization(void *device, struct sample *out, unsigned *count,
                                    unsigned long long since) {
    (void)device;
#ifdef NO_UTILISATION
    return 3;
#endif
#ifdef NOBODY_BUSY
    return 6;
#endif
    if (!out) {
        *count = 3;
        return 7;
    }
    out[0] = (struct sample){11, since + 5, 40, 0, 0, 0};
    out[1] = (struct sample){0, 0, 0, 0, 0, 0};
    out[2] = (struct sample){12, since + 6, 250, 0, 0, 0};
#ifdef ABSURD_UTILISATION
    *count = 1000;
#endif
    return 0;
}
#endif

#ifndef MISSING_OPTIONAL
API nvmlDeviceGetArchitecture(void *device, unsigned *architecture) {
    *architecture = device == &gpus[1] ? 9 : 77;
    sick = 1;
    return 0;
}
API nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *count) {
    *count = type == 1 && counter == 0 && device == &gpus[1] ? 3 : 0;
    return 0;
}
API nvmlDeviceGetRemappedRows(void *device, unsigned *correctable, unsigned *uncorrectable,
                              unsigned *pending, unsigned *failed) {
    *correctable = 7;
    *uncorrectable = 8;
    *pending = device == &gpus[1];
    *failed = device == &gpus[1];
    return 0;
}
API nvmlDeviceGetRetiredPagesPendingStatus(void *device, int *pending) {
    *pending = device == &gpus[1];
    return 0;
}
struct value {
    unsigned id, scope;
    long long at, latency;
    unsigned type;
    int result;
    unsigned value[2];
};
API nvmlDeviceGetFieldValues(void *device, int count, struct value *values) {
    if (count != 1 || values->id != 230) {
        return 2;
    }
    values->result = 0;
    values->value[0] = device == &gpus[1];
    return 0;
}

/* Each GPU's errors, once: GPU 0 has an application's and one of its own. */
struct event {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};
static int sets[2], told[2];
static void *listens[2];
API nvmlDeviceGetSupportedEventTypes(void *device, unsigned long long *types) {
    (void)device;
    *types = 8 | 2;
    return 0;
}
API nvmlEventSetCreate(void **set) {
    *set = &sets[listens[0] != 0];
    return 0;
}
API nvmlEventSetFree(void *set) {
    listens[set == &sets[1]] = 0;
    return 0;
}
API nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) {
    listens[set == &sets[1]] = device;
    return types == 8 ? 0 : 3;
}
API nvmlEventSetWait_v2(void *set, struct event *event, unsigned timeout) {
    int which = set == &sets[1];
    const unsigned xids[] = {31, 79};
    if (timeout != 0 || listens[which] != &gpus[0] || told[which] >= 2) {
        return 10;
    }
    *event = (struct event){0, 8, xids[told[which]++], 0, 0};
    return 0;
}
#endif

/* What the GPUs do and how they are set: GPU 1 has neither a fan nor ECC. */
#ifndef MISSING_OPTIONAL
API nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2]) {
    rates[0] = 87;
    rates[1] = 12;
    return state(device);
}
API nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) {
    *celsius = 61;
    return sensor == 0 ? state(device) : 2;
}
API nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    *milliwatts = 240500;
    return state(device);
}
API nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) {
    *milliwatts = 400000;
    return state(device);
}
API nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    *millijoules = 5000000000;
    return state(device);
}
API nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz) {
    *mhz = type == 1 ? 1410 : type == 2 ? 1593 : 1;
    return state(device);
}
API nvmlDeviceGetFanSpeed(void *device, unsigned *percent) {
    *percent = 33;
    return device == &gpus[1] ? 3 : 0;
}
API nvmlDeviceGetPerformanceState(void *device, int *at) {
    *at = device == &gpus[1] ? 32 : 2; /* 32 is an unknown one */
    return 0;
}
API nvmlDeviceGetPersistenceMode(void *device, int *mode) {
    *mode = 1;
    return state(device);
}
API nvmlDeviceGetDisplayActive(void *device, int *mode) {
    *mode = 0;
    return state(device);
}
API nvmlDeviceGetEccMode(void *device, int *current, int *pending) {
    *current = *pending = 1;
    return device == &gpus[1] ? 3 : 0;
}
API nvmlDeviceGetComputeMode(void *device, int *mode) {
    *mode = 3;
    return state(device);
}
#endif
