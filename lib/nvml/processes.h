/*
 * The tenant's own processes, and lists of the driver reduced to them.
 *
 * A process is known by its slot in the state page. Its pid there is the one of its own pid
 * namespace, which is the caller's where a tenant is one container; the driver may report either
 * that pid or the host's (the open kernel module translates to the caller's namespace, older ones
 * do not), so both are recognised and the former is shown.
 */
#ifndef DIVVY_NVML_PROCESSES_H
#define DIVVY_NVML_PROCESSES_H

#include "nvml/gpus.h"

#include <stddef.h>
#include <stdint.h>

struct tenant_process {
    unsigned int pid;      /* to show */
    unsigned int host_pid; /* 0 if not known */
    uint64_t used;         /* bytes charged on the GPU asked about */
};

struct tenant {
    struct tenant_process *processes; /* on the heap */
    unsigned int count;
    unsigned int room;
    bool exhausted; /* the heap was */
};

/* Reads the tenant's living processes and their charges on one GPU. NVML_ERROR_MEMORY if the heap
 * is exhausted; free with tenant_free in every case. */
DV_HIDDEN nvmlReturn_t tenant_read(const struct gpu *gpu, struct tenant *tenant);
DV_HIDDEN void tenant_free(struct tenant *tenant);

/* The process that the driver calls `pid`, NULL if it is not the tenant's. */
DV_HIDDEN const struct tenant_process *tenant_find(const struct tenant *tenant, unsigned int pid);

/* How one of the driver's lists is laid out and asked for. */
struct list {
    /* Calls the driver: *count is room and then number of entries, as in NVML's list functions. */
    nvmlReturn_t (*query)(nvmlDevice_t device, unsigned int *count, void *entries,
                          const void *argument);
    const void *argument; /* for query */
    size_t stride;        /* bytes from entry to entry */
    size_t pid;           /* offset of the unsigned int that holds the process */
    size_t memory;        /* offset of the unsigned long long to be replaced by the charge, or 0 */
};

/* Asks the driver for a whole list and drops what is not the tenant's. *entries is on the heap and
 * the caller's to free, NULL on any error and for an empty list. Errors are the driver's,
 * NVML_ERROR_INVALID_ARGUMENT for a GPU outside the share, or NVML_ERROR_MEMORY. */
DV_HIDDEN nvmlReturn_t list_read(const struct list *list, nvmlDevice_t device, void **entries,
                                 unsigned int *count);

/* Hands `number` entries to the caller under the rule of NVML's lists: *count is the caller's room
 * and becomes the number; too little room is NVML_ERROR_INSUFFICIENT_SIZE, also when the caller
 * only asks for the number by a room of 0. */
DV_HIDDEN nvmlReturn_t list_give(const void *entries, unsigned int number, size_t stride,
                                 unsigned int *count, void *out);

#endif
