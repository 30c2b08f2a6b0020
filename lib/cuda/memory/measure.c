#define _GNU_SOURCE
#include "cuda/memory/measure.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "abi/generated/page_layout.h"
#include "abi/nvml/types.h"
#include "cuda/attach.h"
#include "cuda/fork.h"

#define PROCESSES_MAX 512u /* on one GPU; more than any GPU runs */
#define QUESTION_NS UINT64_C(250000000)
#define QUESTIONS_MAX 8u /* in a row */

typedef nvmlReturn_t processes_function(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *);

/* The functions of NVML that are used here, under the names that all drivers since 450 have. */
struct nvml {
    nvmlReturn_t (*find)(const char *, nvmlDevice_t *);  /* by UUID */
    nvmlReturn_t (*reach)(const char *, nvmlDevice_t *); /* by PCI address; may be NULL */
    processes_function *processes;
    processes_function *clients; /* of MPS; may be NULL */
};

static struct nvml nvml;

/* GPUs of the share that were found, NULL until then. */
static nvmlDevice_t known[DV_PAGE_DEVICES];
static enum { UNTRIED, READY, ABSENT } state;

uint32_t measure_due[DV_PAGE_DEVICES];

/* CLOCK_MONOTONIC ns up to which there were questions, had they come at an even pace. */
static uint64_t asked;

bool measure_allowed(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    uint64_t now = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
    uint64_t before = __atomic_load_n(&asked, __ATOMIC_RELAXED), from;
    do {
        from = before > now ? before : now;
        if (from - now > (QUESTIONS_MAX - 1) * QUESTION_NS) {
            return false;
        }
    } while (!__atomic_compare_exchange_n(&asked, &before, from + QUESTION_NS, false,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return true;
}

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
        symbol(from, "nvmlDeviceGetMPSComputeRunningProcesses_v3", &found.clients);
        dlerror();
    }
    bool ready =
        init != NULL && found.find != NULL && found.processes != NULL && init() == NVML_SUCCESS;
    if (ready) {
        __atomic_store_n(&nvml.find, found.find, __ATOMIC_RELAXED);
        __atomic_store_n(&nvml.reach, found.reach, __ATOMIC_RELAXED);
        __atomic_store_n(&nvml.processes, found.processes, __ATOMIC_RELAXED);
        __atomic_store_n(&nvml.clients, found.clients, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&state, ready ? READY : ABSENT, __ATOMIC_RELEASE);
}

static bool find_named(const char *kind, const uint8_t u[16], nvmlDevice_t *gpu) {
    char text[48];
    snprintf(text, sizeof text,
             "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", kind, u[0],
             u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
             u[14], u[15]);
    return nvml.find(text, gpu) == NVML_SUCCESS;
}

/* To search for a UUID the driver may touch every GPU, also one that never answers. A MIG instance
 * has no other name, and its GPU's figures are not its own. */
static bool find_gpu(const char *place, const uint8_t uuid[16], nvmlDevice_t *gpu) {
    if (dv_share_mig(attached_share())) {
        return find_named("MIG", uuid, gpu);
    }
    if (place[0] != '\0' && nvml.reach != NULL) {
        nvmlReturn_t result = nvml.reach(place, gpu);
        if (result != NVML_ERROR_NOT_FOUND && result != NVML_ERROR_INVALID_ARGUMENT) {
            return result == NVML_SUCCESS;
        }
    }
    return find_named("GPU", uuid, gpu);
}

/* A program that shuts NVML down too often ends our handles too: they are found anew then. */
static nvmlReturn_t list_processes(processes_function *processes, unsigned device,
                                   const char *place, const uint8_t uuid[16], unsigned *count,
                                   nvmlProcessInfo_t *list) {
    nvmlDevice_t gpu = __atomic_load_n(&known[device], __ATOMIC_ACQUIRE);
    if (gpu == NULL && !find_gpu(place, uuid, &gpu)) {
        return NVML_ERROR_NOT_FOUND;
    }
    nvmlReturn_t result = processes(gpu, count, list);
    __atomic_store_n(&known[device], result == NVML_SUCCESS ? gpu : NULL, __ATOMIC_RELEASE);
    return result;
}

/* What one of NVML's lists has of this process; false if it is not there. */
static bool find_self(processes_function *processes, unsigned device, const char *place,
                      const uint8_t uuid[16], uint64_t *bytes) {
    nvmlProcessInfo_t list[PROCESSES_MAX];
    unsigned count = PROCESSES_MAX;
    if (list_processes(processes, device, place, uuid, &count, list) != NVML_SUCCESS) {
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

bool measure_process(unsigned device, const char *place, const uint8_t uuid[16], uint64_t *bytes) {
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == UNTRIED) {
        load();
    }
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != READY) {
        return false;
    }
    if (find_self(nvml.processes, device, place, uuid, bytes)) {
        return true;
    }
    /* NVML has a list of its own for the clients of MPS. */
    return dv_share_mps_pipe(attached_share()) != NULL && nvml.clients != NULL &&
           find_self(nvml.clients, device, place, uuid, bytes);
}

static void measure_forked(void) {
    state = UNTRIED;
    memset(known, 0, sizeof known);
    memset(measure_due, 0, sizeof measure_due);
    asked = 0;
}
ON(forked, measure_forked);
