/* Which GPUs a process sees. */
#ifndef SIMGPU_MACHINE_VISIBLE_H
#define SIMGPU_MACHINE_VISIBLE_H

#include "abi/generated/machine_layout.h"
#include "simgpu/machine/limits.h"

/* What decides it. */
struct sg_sight {
    const char *visible; /* CUDA_VISIBLE_DEVICES, NULL where it is not set */
    const char *order;   /* CUDA_DEVICE_ORDER, likewise */
    uint32_t denied;     /* bits of GPUs that the process may not open: see sg_denied */
    uint32_t hidden;     /* bits of GPUs that do not count: see sg_hidden */
};

/* Bits of the GPUs whose stand-in of a device node, DIR/dev/nvidia<minor>, denies this process reading or
 * writing. A stand-in that does not exist denies nothing. */
uint32_t sg_denied(const sim_machine *machine, const char *dir);
/* The same, and bits of the GPUs in MIG mode. */
struct sg_instance;
uint32_t sg_hidden(const struct sg_instance *in, const sim_machine *machine, const char *dir);

/* Which GPUs of the machine the process sees, in CUDA's order; returns their number. */
unsigned sg_visible(const sim_machine *machine, const struct sg_sight *sight,
                    uint32_t gpus[SG_GPUS_MAX]);

#endif
