#define _GNU_SOURCE
#include "simgpu/machine/fault.h"

#include <string.h>
#include <time.h>

static void delay(uint32_t us) {
    struct timespec left = {.tv_sec = us / 1000000u, .tv_nsec = (long)(us % 1000000u) * 1000};

    while (nanosleep(&left, &left) != 0)
        ;
}

bool sg_fault_silent(struct sg_instance *in, uint32_t gpu, enum sg_silence part) {
    return __atomic_load_n(&in->state->gpus[gpu].faults.silence, __ATOMIC_ACQUIRE) & part;
}

/* Uses one of the injection's remaining calls; false when none is left. */
static bool use(struct sg_call_fault *fault) {
    uint64_t left = __atomic_load_n(&fault->left, __ATOMIC_RELAXED);

    while (left != SG_FAULT_FOREVER) {
        if (left == 0) {
            return false;
        }
        if (__atomic_compare_exchange_n(&fault->left, &left, left - 1, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
            break;
        }
    }
    return true;
}

static uint32_t class_result(const struct sg_faults *faults, enum sg_fault_class class) {
    switch (class) {
    case SG_FAULT_ALLOC:
        return __atomic_load_n(&faults->alloc_result, __ATOMIC_RELAXED);
    case SG_FAULT_WORK:
        return __atomic_load_n(&faults->cuda_result, __ATOMIC_RELAXED);
    case SG_FAULT_NVML:
        return __atomic_load_n(&faults->nvml_result, __ATOMIC_RELAXED);
    case SG_FAULT_OTHER:
        break;
    }
    return 0;
}

uint32_t sg_fault_answer(struct sg_instance *in, uint32_t gpu, enum sg_fault_class class,
                         const char *name) {
    struct sg_faults *faults = &in->state->gpus[gpu].faults;
    uint32_t us;

    /* One load is all that a machine without faults pays. */
    if (__atomic_load_n(&faults->armed, __ATOMIC_ACQUIRE) == 0) {
        return 0;
    }
    us = __atomic_load_n(&faults->call_delay_us, __ATOMIC_RELAXED);
    if (us) {
        delay(us);
    }
    for (unsigned i = 0; i < SG_CALL_FAULTS; i++) {
        struct sg_call_fault *fault = &faults->calls[i];
        /* The rest of the name is there once its first byte is. */
        if (__atomic_load_n(&fault->call[0], __ATOMIC_ACQUIRE) != name[0] ||
            strncmp(fault->call, name, sizeof fault->call) != 0 || !use(fault)) {
            continue;
        }
        us = __atomic_load_n(&fault->delay_us, __ATOMIC_RELAXED);
        if (us) {
            delay(us);
        }
        uint32_t result = __atomic_load_n(&fault->result, __ATOMIC_RELAXED);
        if (result) {
            return result;
        }
    }
    return class_result(faults, class);
}
