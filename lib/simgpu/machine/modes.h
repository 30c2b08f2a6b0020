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

/* How long a process's turn on a contended GPU is. The numbers are those of `nvidia-smi compute-policy`. */
enum sg_slice_level {
    SG_SLICE_DEFAULT, /* the machine file's costs.timeSlice */
    SG_SLICE_SHORT,
    SG_SLICE_MEDIUM,
    SG_SLICE_LONG,
    SG_SLICE_LEVELS,
};

/* Whether this process may change the machine: it is root, or whoever started the machine. */
bool sg_is_owner(const struct sg_instance *in);
enum sg_compute_mode sg_compute_mode(const struct sg_instance *in, uint32_t gpu);
void sg_compute_mode_set(struct sg_instance *in, uint32_t gpu, enum sg_compute_mode mode);
enum sg_slice_level sg_slice_level(const struct sg_instance *in, uint32_t gpu);
/* It holds from the next turn on, until it is set again or the GPU is reset. */
void sg_slice_level_set(struct sg_instance *in, uint32_t gpu, enum sg_slice_level level);
/* The time slice of a GPU's processes that have none of their own. */
uint64_t sg_slice_ns(const struct sg_instance *in, uint32_t gpu);
/* reset.c; the state lock is held.
 * Resets the GPU, after which it answers again, and who had NVML open must open it anew: 0, or -EBUSY while a process has
 * a context or memory there. */
int sg_reset(struct sg_instance *in, uint32_t gpu);
/* The same as the driver does it: -EBUSY also while somebody else has the machine open, -EOPNOTSUPP where it cannot. */
int sg_reset_by_driver(struct sg_instance *in, uint32_t gpu);
/* Whether the GPU's compute mode lets one more context be made; the state lock is held. Frees what dead processes
 * had on the GPU where that decides. */
bool sg_admits_context(struct sg_instance *in, uint32_t gpu);

#endif
