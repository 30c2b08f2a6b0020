/* A driver's management library with two GPUs, or what -DMISSING_... leaves of one. */
#include <stdio.h>
#include <string.h>

#define API __attribute__((visibility("default"))) int

static int gpus[2];

#ifndef MISSING_INIT
API nvmlInit_v2(void) {
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
    *device = &gpus[index];
    return index < 2 ? 0 : 2;
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

struct memory {
    unsigned long long total, free, used;
};
API nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    (void)device;
    *memory = (struct memory){1000, 600, 400};
    return 0;
}
#ifndef MISSING_OPTIONAL
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
API nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory) {
    (void)device;
    memory->total = 1000;
    memory->reserved = 100;
    memory->free = 600;
    memory->used = 300;
    return 0;
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
    const struct process from[] = {{11, 5000, 0, 0}, {12, ~0ull, 0, 0}};
    return list(count, out, from, 2);
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
