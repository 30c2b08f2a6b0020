#define _GNU_SOURCE
#include "cuda/memory/measure.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "abi/nvml/types.h"
#include "cuda/fork.h"

#define PROCESSES_MAX 512u /* on one GPU; more than any GPU runs */

/* The functions of NVML that are used here, under the names that all drivers since 450 have. */
struct nvml {
    nvmlReturn_t (*find)(const char *, nvmlDevice_t *);  /* by UUID */
    nvmlReturn_t (*reach)(const char *, nvmlDevice_t *); /* by PCI address; may be NULL */
    nvmlReturn_t (*processes)(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *);
};

static struct nvml nvml;
static enum { UNTRIED, READY, ABSENT } state;

static void *library(void) {
    /* The driver's NVML carries the SONAME under which programs will look for ours. Ours is loaded
     * first, so that it stays the one that they find, and brings the driver's as its dependency. */
    void *named = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    void *real = dlopen("libnvidia-ml-real.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    dlerror();
    return real != NULL ? real : named;
}

/* Dlsym's object pointers as function pointers, which POSIX allows and ISO C has no cast for. */
static void symbol(void *from, const char *name, void *function) {
    *(void **)function = dlsym(from, name);
}

static void load(void) {
    /* Threads that get here together do it twice; NVML counts its initialisations. */
    struct nvml found = {0};
    nvmlReturn_t (*init)(void) = NULL;
    void *from = library();
    if (from != NULL) {
        symbol(from, "nvmlInit_v2", &init);
        symbol(from, "nvmlDeviceGetHandleByUUID", &found.find);
        symbol(from, "nvmlDeviceGetHandleByPciBusId_v2", &found.reach);
        symbol(from, "nvmlDeviceGetComputeRunningProcesses_v3", &found.processes);
        if (found.processes == NULL) {
            symbol(from, "nvmlDeviceGetComputeRunningProcesses_v2", &found.processes);
        }
        dlerror();
    }
    bool ready =
        init != NULL && found.find != NULL && found.processes != NULL && init() == NVML_SUCCESS;
    if (ready) {
        __atomic_store_n(&nvml.find, found.find, __ATOMIC_RELAXED);
        __atomic_store_n(&nvml.reach, found.reach, __ATOMIC_RELAXED);
        __atomic_store_n(&nvml.processes, found.processes, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&state, ready ? READY : ABSENT, __ATOMIC_RELEASE);
}

/* To search for a UUID the driver may touch every GPU, also one that never answers. */
static bool find_gpu(const char *place, const uint8_t u[16], nvmlDevice_t *gpu) {
    char text[48];
    if (place[0] != '\0' && nvml.reach != NULL) {
        nvmlReturn_t result = nvml.reach(place, gpu);
        if (result != NVML_ERROR_NOT_FOUND && result != NVML_ERROR_INVALID_ARGUMENT) {
            return result == NVML_SUCCESS;
        }
    }
    snprintf(text, sizeof text,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
             u[15]);
    return nvml.find(text, gpu) == NVML_SUCCESS;
}

bool measure_process(const char *place, const uint8_t uuid[16], uint64_t *bytes) {
    nvmlDevice_t gpu;
    nvmlProcessInfo_t list[PROCESSES_MAX];
    unsigned count = PROCESSES_MAX;
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == UNTRIED) {
        load();
    }
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != READY || !find_gpu(place, uuid, &gpu) ||
        nvml.processes(gpu, &count, list) != NVML_SUCCESS) {
        return false;
    }
    /* A process that has the driver loaded twice may be listed twice. All ones stands for "not
     * available". */
    uint64_t sum = 0;
    bool found = false;
    for (unsigned i = 0; i < count; i++) {
        if (list[i].pid == (unsigned)getpid() && list[i].usedGpuMemory != UINT64_MAX) {
            sum += list[i].usedGpuMemory;
            found = true;
        }
    }
    *bytes = sum;
    return found;
}

static void measure_forked(void) {
    state = UNTRIED;
}
ON(forked, measure_forked);
