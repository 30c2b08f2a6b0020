/* Faults on demand: calls that fail or are slow because simgpuctl was told so. */
#ifndef SIMGPU_MACHINE_FAULT_H
#define SIMGPU_MACHINE_FAULT_H

#include "simgpu/machine/state.h"

/* The classes of calls that one word can make fail. */
enum sg_fault_class {
    SG_FAULT_ALLOC, /* takes device memory */
    SG_FAULT_WORK,  /* launches, copies, synchronises */
    SG_FAULT_NVML,  /* asks NVML about a device */
    SG_FAULT_OTHER, /* can only be named */
};

/* What does not answer on a GPU, until simgpuctl clears it. */
enum sg_silence {
    SG_SILENT_DEVICE = 1, /* every NVML call about the device, and finding its handle */
    SG_SILENT_INIT = 2,   /* nvmlInit */
};

/* Whether that part of a GPU is silent. */
bool sg_fault_silent(struct sg_instance *in, uint32_t gpu, enum sg_silence part);

/* What the exported function `name` must answer instead of doing its work on that GPU: 0 when
 * nothing was injected. Takes no lock; sleeps first where a delay was injected. */
uint32_t sg_fault_answer(struct sg_instance *in, uint32_t gpu, enum sg_fault_class class,
                         const char *name);

#endif
