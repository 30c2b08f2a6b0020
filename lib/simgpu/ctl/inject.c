/* simgpuctl inject and clear: faults on demand, as machine/fault.c answers them.
 *
 * A fault is written member by member while calls read it; `armed` comes last, and the name of a
 * call's fault is empty until its other members are there. */
#define _GNU_SOURCE
#include "simgpu/ctl/ctl.h"

#include <stdio.h>
#include <string.h>

#include "simgpu/machine/fault.h"

/* A class has one word; a delay or a count of its own it cannot have. */
static bool inject_class(struct sg_faults *faults, const struct ctl_injection *what) {
    uint32_t *word = NULL;

    if (strcmp(what->call, "alloc") == 0) {
        word = &faults->alloc_result;
    } else if (strcmp(what->call, "work") == 0) {
        word = &faults->cuda_result;
    } else if (strcmp(what->call, "nvml") == 0) {
        word = &faults->nvml_result;
    }
    if (!word) {
        return false;
    }
    __atomic_store_n(word, what->result, __ATOMIC_RELAXED);
    if (what->delay_us) {
        __atomic_store_n(&faults->call_delay_us, what->delay_us, __ATOMIC_RELAXED);
    }
    return true;
}

/* NVML does not answer any more; "silent-init" also keeps nvmlInit from returning. */
static bool inject_silence(struct sg_faults *faults, const struct ctl_injection *what) {
    uint32_t silence = 0;

    if (strcmp(what->call, "silent") == 0) {
        silence = SG_SILENT_DEVICE;
    } else if (strcmp(what->call, "silent-init") == 0) {
        silence = SG_SILENT_DEVICE | SG_SILENT_INIT;
    }
    __atomic_fetch_or(&faults->silence, silence, __ATOMIC_RELEASE);
    return silence != 0;
}

/* Replaces the fault of that name, or uses a free entry; false when there is none. */
static bool inject_call(struct sg_faults *faults, const struct ctl_injection *what) {
    struct sg_call_fault *place = NULL;

    for (unsigned i = 0; i < SG_CALL_FAULTS; i++) {
        struct sg_call_fault *fault = &faults->calls[i];
        if (strncmp(fault->call, what->call, sizeof fault->call) == 0) {
            place = fault;
            break;
        }
        if (!place && fault->call[0] == '\0') {
            place = fault;
        }
    }
    if (!place) {
        return false;
    }
    __atomic_store_n(&place->call[0], '\0', __ATOMIC_RELEASE);
    __atomic_store_n(&place->result, what->result, __ATOMIC_RELAXED);
    __atomic_store_n(&place->delay_us, what->delay_us, __ATOMIC_RELAXED);
    __atomic_store_n(&place->left, what->count ? what->count : SG_FAULT_FOREVER, __ATOMIC_RELAXED);
    strncpy(place->call + 1, what->call + 1, sizeof place->call - 1);
    __atomic_store_n(&place->call[0], what->call[0], __ATOMIC_RELEASE);
    return true;
}

/* An Xid: its count in the high half tells the same error twice apart. */
static void inject_xid(struct sg_faults *faults, uint32_t xid) {
    uint64_t last = __atomic_load_n(&faults->xid, __ATOMIC_RELAXED);

    __atomic_store_n(&faults->xid, ((last >> 32) + 1) << 32 | xid, __ATOMIC_RELEASE);
}

/* Resets the GPU, after which it answers again. Like the driver it refuses that while a process
 * uses the GPU. The state is locked. */
static bool reset(struct sg_instance *in, const char *dir, uint32_t gpu) {
    if (sg_reset(in, gpu) == 0) {
        return true;
    }
    fprintf(stderr, "%s: GPU %u is in use and cannot be reset: end its processes first\n", dir,
            gpu);
    return false;
}

/* Opens the instance and finds a GPU of it; says why when there is none. */
static struct sg_faults *open_faults(struct sg_instance *in, const char *dir, uint32_t gpu) {
    if (!ctl_open(in, dir)) {
        return NULL;
    }
    if (gpu < in->state->gpu_count) {
        return &in->state->gpus[gpu].faults;
    }
    fprintf(stderr, "%s: there is no GPU %u: the machine has %u, numbered from 0\n", dir, gpu,
            in->state->gpu_count);
    sg_close(in);
    return NULL;
}

int ctl_inject(const char *dir, uint32_t gpu, const struct ctl_injection *what) {
    struct sg_instance in;
    int status = 0;
    size_t length = strlen(what->call);

    if (length == 0 || length >= SG_CALL_BYTES) {
        fprintf(stderr, "%s: \"%s\" cannot be the name of a call\n", dir, what->call);
        return 1;
    }
    struct sg_faults *faults = open_faults(&in, dir, gpu);
    if (!faults) {
        return 1;
    }
    sg_state_lock(&in); /* one writer at a time */
    if (strcmp(what->call, "reset") == 0) {
        status = reset(&in, dir, gpu) ? 0 : 1;
    } else if (strcmp(what->call, "xid") == 0) {
        inject_xid(faults, what->result);
    } else if (strcmp(what->call, "no-reset") == 0) {
        faults->unresettable = 1;
    } else if (inject_silence(faults, what) || inject_class(faults, what) ||
               inject_call(faults, what)) {
        __atomic_store_n(&faults->armed, 1, __ATOMIC_RELEASE);
    } else {
        fprintf(stderr,
                "%s: %u calls are injected already: end them with `divvy simgpu inject --clear`\n",
                dir, SG_CALL_FAULTS);
        status = 1;
    }
    sg_state_unlock(&in);
    sg_mig_files(&in, gpu);
    sg_close(&in);
    return status;
}

int ctl_clear(const char *dir, uint32_t gpu) {
    struct sg_instance in;
    struct sg_faults *faults = open_faults(&in, dir, gpu);

    if (!faults) {
        return 1;
    }
    sg_state_lock(&in);
    uint64_t xid = faults->xid; /* a count that started anew would look like an event */
    uint64_t resets = faults->resets;
    __atomic_store_n(&faults->armed, 0, __ATOMIC_RELEASE);
    memset(faults, 0, sizeof *faults);
    faults->xid = xid;
    faults->resets = resets;
    sg_state_unlock(&in);
    sg_close(&in);
    return 0;
}
