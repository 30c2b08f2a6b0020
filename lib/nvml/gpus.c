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

unsigned gpus_count(void) {
    dv_share *share = atomic_load_explicit(&opened, memory_order_acquire);
    return share ? dv_share_device_count(share) : 0;
}

/* Writes the text form of a device's UUID as the driver spells it. */
static void spell_uuid(const dv_page_device *device, char text[UUID_TEXT]) {
    const uint8_t *u = device->uuid;
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

/* Reads the driver's text form of a GPU's UUID. False for anything else, as a MIG instance's. */
static bool read_uuid(const char *text, uint8_t uuid[16]) {
    if (strncmp(text, "GPU-", 4) != 0) {
        return false;
    }
    text += 4;
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

/* The device of the share behind a handle of the driver's, or -1. */
static int find_handle(dv_share *share, nvmlDevice_t handle) {
    char text[UUID_TEXT] = "";
    uint8_t uuid[16];
    if (DV_CALL(nvmlDeviceGetUUID, handle, text, UUID_TEXT) != NVML_SUCCESS ||
        !read_uuid(text, uuid)) {
        return -1;
    }
    return dv_share_find(share, uuid);
}

/* Finds a device by its PCI address, and only if it is not there by its UUID: to search for a UUID
 * the driver may touch every GPU, also one that never answers. */
static nvmlReturn_t device_handle(dv_share *share, unsigned device, nvmlDevice_t *handle) {
    const dv_page_device *wanted = dv_share_device(share, device);
    char text[UUID_TEXT];
    if (wanted->pci_bus_id[0] != '\0' && !DV_LACKS(nvmlDeviceGetHandleByPciBusId_v2) &&
        DV_CALL(nvmlDeviceGetHandleByPciBusId_v2, wanted->pci_bus_id, handle) == NVML_SUCCESS &&
        find_handle(share, *handle) == (int)device) {
        return NVML_SUCCESS;
    }
    spell_uuid(wanted, text);
    return DV_CALL(nvmlDeviceGetHandleByUUID, text, handle);
}

enum gpu_relation gpu_find(nvmlDevice_t handle, struct gpu *gpu) {
    gpu->share = atomic_load_explicit(&opened, memory_order_acquire);
    gpu->device = 0;
    if (gpu->share == NULL) {
        return GPU_OUTSIDE;
    }
    int device = find_handle(gpu->share, handle);
    if (device >= 0) {
        gpu->device = (unsigned)device;
        return GPU_SHARED;
    }
    nvmlDevice_t parent;
    if (DV_CALL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle, &parent) != NVML_SUCCESS) {
        return GPU_OUTSIDE;
    }
    device = find_handle(gpu->share, parent);
    gpu->device = device >= 0 ? (unsigned)device : 0;
    return device >= 0 ? GPU_PART : GPU_OUTSIDE;
}

/* Sorts the share's devices by the driver's index. A GPU for which the driver has no index (it is
 * lost) sorts last, and the order is then not kept. */
static nvmlReturn_t sort_devices(dv_share *share, unsigned char sorted[DV_PAGE_DEVICES]) {
    unsigned index[DV_PAGE_DEVICES];
    unsigned count = dv_share_device_count(share);
    bool complete = true;
    for (unsigned device = 0; device < count; device++) {
        nvmlDevice_t handle;
        nvmlReturn_t result = device_handle(share, device, &handle);
        if (result == NVML_ERROR_UNINITIALIZED) {
            return result;
        }
        if (result != NVML_SUCCESS ||
            DV_CALL(nvmlDeviceGetIndex, handle, &index[device]) != NVML_SUCCESS) {
            index[device] = UINT_MAX;
            complete = false;
        }
        unsigned at = device;
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
    if (position >= dv_share_device_count(share)) {
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
    unsigned count = dv_share_device_count(gpu->share);
    for (unsigned at = 0; at < count; at++) {
        if (sorted[at] == gpu->device) {
            *position = at;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_UNKNOWN;
}
