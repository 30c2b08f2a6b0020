#include "nvml/processes.h"

#include <stdlib.h>
#include <string.h>

/* How often a list may grow while it is read before that counts as an error. */
#define LIST_TRIES 8

/* Spare entries for processes that start between two questions. */
#define LIST_SPARE 16u

struct collection {
    struct tenant *tenant;
    unsigned device;
    unsigned kept; /* where what stays on the GPU is charged, which may be the same */
};

static bool collect(const dv_process *process, void *argument) {
    const struct collection *collection = argument;
    struct tenant *tenant = collection->tenant;
    if (tenant->count == tenant->room) {
        unsigned int room = tenant->room ? 2 * tenant->room : 16;
        struct tenant_process *grown = realloc(tenant->processes, room * sizeof *grown);
        if (grown == NULL) {
            tenant->exhausted = true;
            return false;
        }
        tenant->processes = grown;
        tenant->room = room;
    }
    uint64_t used = process->used[collection->device];
    used += collection->kept != collection->device ? process->used[collection->kept] : 0;
    tenant->processes[tenant->count++] = (struct tenant_process){
        .pid = (unsigned int)process->pid,
        .host_pid = (unsigned int)process->host_pid,
        .used = used,
    };
    return true;
}

nvmlReturn_t tenant_read(const struct gpu *gpu, struct tenant *tenant) {
    *tenant = (struct tenant){.processes = NULL};
    struct collection collection = {
        .tenant = tenant, .device = gpu->device, .kept = dv_share_kept(gpu->share, gpu->device)};
    dv_processes(gpu->share, collect, &collection);
    return tenant->exhausted ? NVML_ERROR_MEMORY : NVML_SUCCESS;
}

void tenant_free(struct tenant *tenant) {
    free(tenant->processes);
    tenant->processes = NULL;
}

const struct tenant_process *tenant_find(const struct tenant *tenant, unsigned int pid) {
    for (unsigned int at = 0; at < tenant->count; at++) {
        const struct tenant_process *process = &tenant->processes[at];
        if (process->pid == pid || (process->host_pid != 0 && process->host_pid == pid)) {
            return process;
        }
    }
    return NULL;
}

/* Reads the driver's list into room that grows until it holds all of it. */
static nvmlReturn_t read_all(const struct list *list, nvmlDevice_t device, void **entries,
                             unsigned int *count) {
    unsigned int room = LIST_SPARE;
    for (int attempt = 0; attempt < LIST_TRIES; attempt++) {
        void *grown = realloc(*entries, room * list->stride);
        if (grown == NULL) {
            return NVML_ERROR_MEMORY;
        }
        *entries = grown;
        *count = room;
        nvmlReturn_t result = list->query(device, count, grown, list->argument);
        if (result == NVML_SUCCESS) {
            return *count <= room ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
        }
        if (result != NVML_ERROR_INSUFFICIENT_SIZE) {
            return result;
        }
        room = (*count > room ? *count : room) + LIST_SPARE;
    }
    return NVML_ERROR_UNKNOWN;
}

/* Moves the tenant's entries to the front, under the pids to show. Returns their number. */
static unsigned int keep_own(const struct list *list, const struct tenant *tenant, char *entries,
                             unsigned int count) {
    unsigned int kept = 0;
    for (unsigned int at = 0; at < count; at++) {
        char *entry = entries + at * list->stride;
        unsigned int pid;
        memcpy(&pid, entry + list->pid, sizeof pid);
        const struct tenant_process *process = tenant_find(tenant, pid);
        if (process == NULL) {
            continue;
        }
        memcpy(entry + list->pid, &process->pid, sizeof process->pid);
        if (list->memory != 0) {
            unsigned long long used = process->used;
            memcpy(entry + list->memory, &used, sizeof used);
        }
        memmove(entries + kept++ * list->stride, entry, list->stride);
    }
    return kept;
}

nvmlReturn_t list_read(const struct list *list, nvmlDevice_t device, void **entries,
                       unsigned int *count) {
    struct gpu gpu;
    struct tenant tenant = {.processes = NULL};
    *entries = NULL;
    nvmlReturn_t result = read_all(list, device, entries, count);
    if (result == NVML_SUCCESS) {
        result = gpu_find(device, &gpu) == GPU_OUTSIDE ? NVML_ERROR_INVALID_ARGUMENT
                                                       : tenant_read(&gpu, &tenant);
    }
    if (result == NVML_SUCCESS) {
        *count = keep_own(list, &tenant, *entries, *count);
    } else {
        free(*entries);
        *entries = NULL;
    }
    tenant_free(&tenant);
    return result;
}

nvmlReturn_t list_give(const void *entries, unsigned int number, size_t stride, unsigned int *count,
                       void *out) {
    if (*count < number) {
        *count = number;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    if (number > 0 && out == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (number > 0) {
        memcpy(out, entries, number * stride);
    }
    *count = number;
    return NVML_SUCCESS;
}
