/* What is configured about GPUs, and by whom. Part of state.h. */
#ifndef DIVVY_SIMGPU_MACHINE_MODES_H
#define DIVVY_SIMGPU_MACHINE_MODES_H

#include <stdbool.h>
#include <stdint.h>

struct sg_instance;

/* Which contexts may be made on a GPU; the numbers are those of NVML and CUDA. Those that are there go on. */
enum sg_compute_mode {
    SG_COMPUTE_DEFAULT = 0,
    SG_COMPUTE_PROHIBITED = 2,        /* none */
    SG_COMPUTE_EXCLUSIVE_PROCESS = 3, /* one, of whichever process */
};

/* Whether this process may change the machine: it is root, or whoever started the machine. */
bool sg_is_owner(const struct sg_instance *in);
enum sg_compute_mode sg_compute_mode(const struct sg_instance *in, uint32_t gpu);
void sg_compute_mode_set(struct sg_instance *in, uint32_t gpu, enum sg_compute_mode mode);
/* Whether the GPU's compute mode lets one more context be made; the state lock is held. Frees what dead processes
 * had on the GPU where that decides. */
bool sg_admits_context(struct sg_instance *in, uint32_t gpu);

#endif
