#include "nvml/gpus.h"

#include "substitute/log.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Room for "GPU-" or "MIG-" and a UUID: the larger of the two that the driver's reference names. */
#define UUID_TEXT 96

static _Atomic(dv_share *) opened;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* over dv_share_open, nothing else */

/* The share's devices in the driver's order. The order is that of the machine and outlives every
 * initialisation, so it is worked out once; threads that do so together store the same values. */
static _Atomic unsigned char order[DV_PAGE_DEVICES];
static atomic_bool ordered;

/* The thread that was opening the share may not exist in the child. */
static void after_fork(void) {
    dv_share *share = atomic_load(&opened);
    opening = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (share != NULL) {
        dv_share_forked(share);
    }
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, after_fork);
}

nvmlReturn_t gpus_open(void) {
    const char *directory = dv_substitute_directory();
    dv_reason reason = {.text = ""};
    dv_share *share = NULL;
    dv_status status = DV_OK;
    pthread_mutex_lock(&opening);
    if (atomic_load(&opened) == NULL) {
        status = dv_share_open(directory, &share, &reason);
        atomic_store_explicit(&opened, share, memory_order_release);
    }
    pthread_mutex_unlock(&opening);
    if (status != DV_OK) {
        dv_log("NVML refused: share in \"%s\": %s: %s", directory, dv_status_name(status),
               reason.text);
        return NVML_ERROR_UNKNOWN;
    }
    return NVML_SUCCESS;
}

/* The first device that lies on the same GPU: itself, unless the share has several instances there. */
static unsigned first_on_gpu(const dv_share *share, unsigned device) {
    unsigned first = 0;
    if (!dv_share_mig(share)) {
        return device;
    }
    while (memcmp(dv_share_device(share, first)->parent, dv_share_device(share, device)->parent,
                  sizeof dv_share_device(share, device)->parent) != 0) {
        first++;
    }
    return first;
}

static unsigned count_gpus(const dv_share *share) {
    unsigned count = 0;
    for (unsigned device = 0; device < dv_share_device_count(share); device++) {
        count += first_on_gpu(share, device) == device;
    }
    return count;
}

unsigned gpus_count(void) {
    dv_share *share = atomic_load_explicit(&opened, memory_order_acquire);
    return share ? count_gpus(share) : 0;
}

bool gpus_are_instances(void) {
    dv_share *share = atomic_load_explicit(&opened, memory_order_acquire);
    return share != NULL && dv_share_mig(share);
}

/* Writes the text form of the UUID of a device's GPU as the driver spells it. */
static void spell_uuid(const dv_share *share, unsigned device, char text[UUID_TEXT]) {
    const dv_page_device *wanted = dv_share_device(share, device);
    const uint8_t *u = dv_share_mig(share) ? wanted->parent : wanted->uuid;
    snprintf(text, UUID_TEXT,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
             u[15]);
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads the driver's text form of a UUID of that kind, "GPU-" or "MIG-". */
static bool read_uuid(const char *text, const char *kind, uint8_t uuid[16]) {
    if (strncmp(text, kind, strlen(kind)) != 0) {
        return false;
    }
    text += strlen(kind);
    for (unsigned at = 0; at < 16; at++) {
        text += *text == '-';
        int high = hex_digit(text[0]);
        int low = high >= 0 ? hex_digit(text[1]) : -1;
        if (low < 0) {
            return false;
        }
        uuid[at] = (uint8_t)(high << 4 | low);
        text += 2;
    }
    return *text == '\0';
}

static int find_parent(const dv_share *share, const uint8_t uuid[16]) {
    for (unsigned device = 0; device < dv_share_device_count(share); device++) {
        if (memcmp(dv_share_device(share, device)->parent, uuid, 16) == 0) {
            return (int)device;
        }
    }
    return -1;
}

/* The device of the share behind a handle of the driver's, or -1. *instance says whether the handle
 * is a MIG instance's. */
static int find_handle(const dv_share *share, nvmlDevice_t handle, bool *instance) {
    char text[UUID_TEXT] = "";
    uint8_t uuid[16];
    *instance = false;
    if (DV_CALL(nvmlDeviceGetUUID, handle, text, UUID_TEXT) != NVML_SUCCESS) {
        return -1;
    }
    if (read_uuid(text, "GPU-", uuid)) {
        return dv_share_mig(share) ? find_parent(share, uuid) : dv_share_find(share, uuid);
    }
    *instance = read_uuid(text, "MIG-", uuid);
    return *instance && dv_share_mig(share) ? dv_share_find(share, uuid) : -1;
}

/* Finds a device's GPU by its PCI address, and only if it is not there by its UUID: to search for a UUID
 * the driver may touch every GPU, also one that never answers. */
static nvmlReturn_t device_handle(dv_share *share, unsigned device, nvmlDevice_t *handle) {
    const dv_page_device *wanted = dv_share_device(share, device);
    char text[UUID_TEXT];
    bool instance;
    if (wanted->pci_bus_id[0] != '\0' && !DV_LACKS(nvmlDeviceGetHandleByPciBusId_v2) &&
        DV_CALL(nvmlDeviceGetHandleByPciBusId_v2, wanted->pci_bus_id, handle) == NVML_SUCCESS &&
        find_handle(share, *handle, &instance) == (int)device) {
        return NVML_SUCCESS;
    }
    spell_uuid(share, device, text);
    return DV_CALL(nvmlDeviceGetHandleByUUID, text, handle);
}

enum gpu_relation gpu_find(nvmlDevice_t handle, struct gpu *gpu) {
    gpu->share = atomic_load_explicit(&opened, memory_order_acquire);
    gpu->device = 0;
    gpu->instance = false;
    if (gpu->share == NULL) {
        return GPU_OUTSIDE;
    }
    int device = find_handle(gpu->share, handle, &gpu->instance);
    if (device >= 0) {
        gpu->device = (unsigned)device;
        return GPU_SHARED;
    }
    nvmlDevice_t parent;
    bool instance;
    if (dv_share_mig(gpu->share) ||
        DV_CALL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle, &parent) != NVML_SUCCESS) {
        return GPU_OUTSIDE;
    }
    device = find_handle(gpu->share, parent, &instance);
    gpu->device = device >= 0 ? (unsigned)device : 0;
    return device >= 0 ? GPU_PART : GPU_OUTSIDE;
}

/* Sorts the share's GPUs by the driver's index. A GPU for which the driver has no index (it is
 * lost) sorts last, and the order is then not kept. */
static nvmlReturn_t sort_devices(dv_share *share, unsigned char sorted[DV_PAGE_DEVICES]) {
    unsigned index[DV_PAGE_DEVICES];
    unsigned count = 0;
    bool complete = true;
    for (unsigned device = 0; device < dv_share_device_count(share); device++) {
        nvmlDevice_t handle;
        if (first_on_gpu(share, device) != device) {
            continue;
        }
        nvmlReturn_t result = device_handle(share, device, &handle);
        if (result == NVML_ERROR_UNINITIALIZED) {
            return result;
        }
        if (result != NVML_SUCCESS ||
            DV_CALL(nvmlDeviceGetIndex, handle, &index[device]) != NVML_SUCCESS) {
            index[device] = UINT_MAX;
            complete = false;
        }
        unsigned at = count++;
        for (; at > 0 && index[sorted[at - 1]] > index[device]; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = (unsigned char)device;
    }
    if (complete) {
        for (unsigned position = 0; position < count; position++) {
            atomic_store_explicit(&order[position], sorted[position], memory_order_relaxed);
        }
        atomic_store_explicit(&ordered, true, memory_order_release);
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t read_order(dv_share *share, unsigned char sorted[DV_PAGE_DEVICES]) {
    if (!atomic_load_explicit(&ordered, memory_order_acquire)) {
        return sort_devices(share, sorted);
    }
    for (unsigned position = 0; position < DV_PAGE_DEVICES; position++) {
        sorted[position] = atomic_load_explicit(&order[position], memory_order_relaxed);
    }
    return NVML_SUCCESS;
}

nvmlReturn_t gpus_unknown_version(void) {
    unsigned count;
    return DV_CALL(nvmlDeviceGetCount_v2, &count) == NVML_ERROR_UNINITIALIZED
               ? NVML_ERROR_UNINITIALIZED
               : NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}

nvmlReturn_t gpus_handle(unsigned position, nvmlDevice_t *handle) {
    dv_share *share = atomic_load_explicit(&opened, memory_order_acquire);
    if (share == NULL) {
        return NVML_ERROR_UNINITIALIZED;
    }
    unsigned char sorted[DV_PAGE_DEVICES] = {0};
    nvmlReturn_t result = read_order(share, sorted);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (position >= count_gpus(share)) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    return device_handle(share, sorted[position], handle);
}

nvmlReturn_t gpus_position(const struct gpu *gpu, unsigned *position) {
    unsigned char sorted[DV_PAGE_DEVICES] = {0};
    nvmlReturn_t result = read_order(gpu->share, sorted);
    if (result != NVML_SUCCESS) {
        return result;
    }
    unsigned count = count_gpus(gpu->share);
    for (unsigned at = 0; at < count; at++) {
        if (sorted[at] == first_on_gpu(gpu->share, gpu->device)) {
            *position = at;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_UNKNOWN;
}
