/* CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER as the CUDA programming guide documents them: the list
 * is read up to the first entry that names no device. */
#define _GNU_SOURCE
#include "simgpu/cuda/driver.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NO_GPU SG_GPUS_MAX

static uint64_t speed(const sim_gpu *gpu) {
    return (uint64_t)gpu->multiprocessors * gpu->graphics_mhz;
}

/* FASTEST_FIRST, the default, or the machine's own order, which is that of PCI addresses. */
static void sort(const sim_machine *machine, const char *order, uint32_t *gpus) {
    for (uint32_t i = 0; i < machine->gpu_count; i++) {
        uint32_t at = i;
        if (!order || strcmp(order, "PCI_BUS_ID") != 0) {
            while (at > 0 && speed(&machine->gpus[gpus[at - 1]]) < speed(&machine->gpus[i])) {
                gpus[at] = gpus[at - 1];
                at--;
            }
        }
        gpus[at] = i;
    }
}

static void uuid_text(const sim_gpu *gpu, char out[48]) {
    char *at = out + sprintf(out, "GPU-");

    for (unsigned i = 0; i < 16; i++) {
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", gpu->uuid[i]);
    }
}

/* The one GPU whose UUID begins so. MIG names match nothing, because MIG is always off. */
static uint32_t by_uuid(const sim_machine *machine, const char *text, size_t length) {
    uint32_t found = NO_GPU;
    char name[48];

    for (uint32_t i = 0; i < machine->gpu_count; i++) {
        uuid_text(&machine->gpus[i], name);
        if (length <= strlen(name) && strncasecmp(name, text, length) == 0) {
            if (found != NO_GPU) {
                return NO_GPU;
            }
            found = i;
        }
    }
    return found;
}

static uint32_t by_entry(const sim_machine *machine, const uint32_t *ordered, const char *text,
                         size_t length) {
    char *end;

    if (length > 4 && strncasecmp(text, "GPU-", 4) == 0) {
        return by_uuid(machine, text, length);
    }
    if (length == 0 || !isdigit((unsigned char)text[0])) {
        return NO_GPU;
    }
    unsigned long index = strtoul(text, &end, 10);
    return end == text + length && index < machine->gpu_count ? ordered[index] : NO_GPU;
}

static bool has(const uint32_t *gpus, unsigned n, uint32_t gpu) {
    while (n > 0) {
        if (gpus[--n] == gpu) {
            return true;
        }
    }
    return false;
}

unsigned sg_visible(const sim_machine *machine, const char *visible, const char *order,
                    uint32_t gpus[SG_GPUS_MAX]) {
    uint32_t ordered[SG_GPUS_MAX];
    unsigned n = 0;

    sort(machine, order, ordered);
    if (!visible) {
        memcpy(gpus, ordered, machine->gpu_count * sizeof *gpus);
        return machine->gpu_count;
    }
    for (const char *at = visible; n < SG_GPUS_MAX;) {
        at += strspn(at, " \t");
        size_t length = strcspn(at, ",");
        const char *next = at + length;
        while (length && isspace((unsigned char)at[length - 1])) {
            length--;
        }
        uint32_t gpu = by_entry(machine, ordered, at, length);
        if (gpu == NO_GPU) {
            break;
        }
        /* A device that is named twice leaves none, as the driver does. */
        if (has(gpus, n, gpu)) {
            return 0;
        }
        gpus[n++] = gpu;
        if (*next == '\0') {
            break;
        }
        at = next + 1;
    }
    return n;
}
