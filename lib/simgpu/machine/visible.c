/* CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER as the CUDA programming guide documents them: the list
 * is read up to the first entry that names no device. GPUs whose device nodes the process may not
 * open do not count: indexes count those that are left, as in a container or a job whose cgroup
 * denies the others. Nor do GPUs in MIG mode: CUDA shows an instance then. */
#define _GNU_SOURCE
#include "simgpu/machine/visible.h"
#include "simgpu/machine/state.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define NO_GPU SG_GPUS_MAX

static uint64_t speed(const sim_gpu *gpu) {
    return (uint64_t)gpu->multiprocessors * gpu->graphics_mhz;
}

/* The GPUs that indexes count. */
struct order {
    const sim_machine *machine;
    unsigned count;
    uint32_t gpus[SG_GPUS_MAX];
};

/* FASTEST_FIRST, the default, or the machine's own order, which is that of PCI addresses. */
static void sort(struct order *sorted, const char *order, uint32_t hidden) {
    const sim_machine *machine = sorted->machine;
    uint32_t *gpus = sorted->gpus;

    sorted->count = 0;
    for (uint32_t i = 0; i < machine->gpu_count; i++) {
        if (hidden >> i & 1) {
            continue;
        }
        uint32_t at = sorted->count++;
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

/* The one GPU whose UUID begins so. */
static uint32_t by_uuid(const struct order *order, const char *text, size_t length) {
    uint32_t found = NO_GPU;
    char name[48];

    for (unsigned i = 0; i < order->count; i++) {
        uuid_text(&order->machine->gpus[order->gpus[i]], name);
        if (length <= strlen(name) && strncasecmp(name, text, length) == 0) {
            if (found != NO_GPU) {
                return NO_GPU;
            }
            found = order->gpus[i];
        }
    }
    return found;
}

static uint32_t by_entry(const struct order *order, const char *text, size_t length) {
    char *end;

    if (length > 4 && strncasecmp(text, "GPU-", 4) == 0) {
        return by_uuid(order, text, length);
    }
    if (length == 0 || !isdigit((unsigned char)text[0])) {
        return NO_GPU;
    }
    unsigned long index = strtoul(text, &end, 10);
    return end == text + length && index < order->count ? order->gpus[index] : NO_GPU;
}

static bool has(const uint32_t *gpus, unsigned n, uint32_t gpu) {
    while (n > 0) {
        if (gpus[--n] == gpu) {
            return true;
        }
    }
    return false;
}

uint32_t sg_denied(const sim_machine *machine, const char *dir) {
    uint32_t denied = 0;
    char node[SG_PATH_BYTES + 32];

    for (uint32_t i = 0; i < machine->gpu_count; i++) {
        int length = snprintf(node, sizeof node, "%s/dev/nvidia%u", dir, machine->gpus[i].minor);
        if (length < (int)sizeof node && faccessat(AT_FDCWD, node, R_OK | W_OK, AT_EACCESS) != 0 &&
            errno != ENOENT) {
            denied |= 1u << i;
        }
    }
    return denied;
}

uint32_t sg_hidden(const struct sg_instance *in, const sim_machine *machine, const char *dir) {
    uint32_t hidden = sg_denied(machine, dir);

    for (uint32_t i = 0; i < in->state->gpu_count; i++) {
        hidden |= sg_mig_on(in, i) ? 1u << i : 0;
    }
    return hidden;
}

unsigned sg_visible(const sim_machine *machine, const struct sg_sight *sight,
                    uint32_t gpus[SG_GPUS_MAX]) {
    struct order order = {.machine = machine};
    unsigned n = 0;

    sort(&order, sight->order, sight->hidden);
    if (!sight->visible) {
        memcpy(gpus, order.gpus, order.count * sizeof *gpus);
        return order.count;
    }
    for (const char *at = sight->visible; n < SG_GPUS_MAX;) {
        at += strspn(at, " \t");
        size_t length = strcspn(at, ",");
        const char *next = at + length;
        while (length && isspace((unsigned char)at[length - 1])) {
            length--;
        }
        uint32_t gpu = by_entry(&order, at, length);
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
