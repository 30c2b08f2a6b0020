/* GPUs that are divided in hardware (MIG): mode, GPU instances, compute instances, who uses them. Part of state.h.
 *
 * The state lock guards all of it; a process reads its own instance without. Sources: the NVML reference and the MIG
 * user guide. */
#ifndef SIMGPU_MACHINE_MIG_H
#define SIMGPU_MACHINE_MIG_H

#include <stdbool.h>
#include <stdint.h>

#define SG_MIG_GPU_INSTANCES 15u    /* ids of one GPU */
#define SG_MIG_COMPUTE_INSTANCES 8u /* ids of one GPU instance */
#define SG_MIG_ANYWHERE UINT32_MAX  /* a placement that the driver chooses */

struct sg_instance;

struct sg_compute_instance {
    uint32_t in_use;
    uint32_t start, size; /* compute slices of its GPU instance */
    uint32_t pad;
};

struct sg_gpu_instance {
    uint32_t in_use;
    uint32_t profile;     /* place in the machine's profiles */
    uint32_t start;       /* memory slice */
    uint32_t used_blocks; /* derived */
    uint32_t resident;    /* derived; chunks of managed memory on it; the lock of pages */
    uint32_t pad;
    struct sg_compute_instance computes[SG_MIG_COMPUTE_INSTANCES];
};

struct sg_mig {
    uint32_t on, pending;
    struct sg_gpu_instance instances[SG_MIG_GPU_INSTANCES]; /* by id */
};

/* A compute instance of the machine as one number above 0; 0 is none. */
static inline uint32_t sg_place_of(uint32_t gpu, uint32_t gi, uint32_t ci) {
    return (gpu * SG_MIG_GPU_INSTANCES + gi) * SG_MIG_COMPUTE_INSTANCES + ci + 1;
}
static inline uint32_t sg_place_gpu(uint32_t place) {
    return (place - 1) / SG_MIG_COMPUTE_INSTANCES / SG_MIG_GPU_INSTANCES;
}
static inline uint32_t sg_place_gi(uint32_t place) {
    return (place - 1) / SG_MIG_COMPUTE_INSTANCES % SG_MIG_GPU_INSTANCES;
}
static inline uint32_t sg_place_ci(uint32_t place) {
    return (place - 1) % SG_MIG_COMPUTE_INSTANCES;
}

/* mig_memory.c: the memory of GPU instances. */
/* Counts blocks more, or fewer, as those of the GPU instance of a place; nothing for 0. */
void sg_mig_count(struct sg_instance *in, uint32_t place, int32_t blocks);
/* The same of chunks of managed memory. */
void sg_mig_resident(struct sg_instance *in, uint32_t place, uint32_t chunks);
/* Blocks that the caller may still take of a GPU: of its instance, or of the whole. Managed memory gives way to them. */
uint32_t sg_blocks_room(const struct sg_instance *in, uint32_t gpu);
/* The same for users of a place. */
uint32_t sg_blocks_room_of(const struct sg_instance *in, uint32_t gpu, uint32_t place);
/* Those of them in which no managed memory is. */
uint32_t sg_blocks_free(const struct sg_instance *in, uint32_t gpu);
/* Blocks of a GPU instance that processes may have. */
uint32_t sg_mig_blocks(const struct sg_instance *in, uint32_t gpu, uint32_t gi);
/* Bytes that the driver keeps of an instance of a profile. */
uint64_t sg_mig_reserved(const struct sg_instance *in, uint32_t profile);

/* mig.c; the state lock is held unless a comment says otherwise. Dead processes are freed where that decides. */
bool sg_mig_on(const struct sg_instance *in, uint32_t gpu); /* without the lock */
/* Sets the mode that the next activation takes, and activates it, by a reset of the GPU if it needs one: 0, -EBUSY while
 * somebody else has the GPU open, -EAGAIN where a reset is needed and the driver cannot do it. */
int sg_mig_set(struct sg_instance *in, uint32_t gpu, bool on, bool by_reset);
/* The GPU was reset: the pending mode is the current one, and there are no instances. */
void sg_mig_reset(struct sg_instance *in, uint32_t gpu);

/* How many more instances of a profile fit. */
uint32_t sg_mig_remaining(const struct sg_instance *in, uint32_t gpu, uint32_t profile);
/* The id of an instance that begins at a memory slice, or of SG_MIG_ANYWHERE; -EINVAL where the profile has no such
 * placement, -ENOSPC where it does not fit. */
int sg_mig_create(struct sg_instance *in, uint32_t gpu, uint32_t profile, uint32_t start);
/* -EBUSY while it has compute instances or processes. */
int sg_mig_destroy(struct sg_instance *in, uint32_t gpu, uint32_t gi);
/* The same of the compute instances of a GPU instance, by number of compute slices. */
uint32_t sg_mig_compute_starts(const struct sg_instance *in, uint32_t gpu, uint32_t gi,
                               uint32_t slices);
uint32_t sg_mig_compute_remaining(const struct sg_instance *in, uint32_t gpu, uint32_t gi,
                                  uint32_t slices);
int sg_mig_compute_create(struct sg_instance *in, uint32_t gpu, uint32_t gi, uint32_t slices,
                          uint32_t start);
int sg_mig_compute_destroy(struct sg_instance *in, uint32_t gpu, uint32_t gi, uint32_t ci);
/* NULL where there is none. Without the lock the answer may be late. */
const struct sg_gpu_instance *sg_mig_gpu_instance(const struct sg_instance *in, uint32_t gpu,
                                                  uint32_t gi);
const struct sg_compute_instance *sg_mig_compute_instance(const struct sg_instance *in,
                                                          uint32_t place);
/* Multiprocessors of a compute instance of so many slices. */
uint32_t sg_mig_multiprocessors(const struct sg_instance *in, uint32_t profile, uint32_t slices);
/* A compute instance's UUID. It depends on the GPU and on the ids alone, so one that is made again has it again. */
void sg_mig_uuid(const struct sg_instance *in, uint32_t place, uint8_t uuid[16]);
/* "MIG 1g.10gb", or "MIG 1c.3g.40gb" for a part of a GPU instance's compute slices. */
void sg_mig_name(const struct sg_instance *in, uint32_t place, char name[40]);
/* The number of /dev/nvidia-caps/nvidia-cap<number> that a user of a compute instance must be able to open: that of the
 * instance, or with `gpu` that of its GPU instance. As /proc/driver/nvidia-caps/mig-minors lists them. */
uint32_t sg_mig_minor(const struct sg_instance *in, uint32_t place, bool gpu);
/* mig_files.c: makes the files that tell of a GPU's instances agree with them. No lock is held. */
void sg_mig_files(const struct sg_instance *in, uint32_t gpu);
/* The next compute instance of a GPU from a place on, in the order of MIG devices; 0 when there is none. */
uint32_t sg_mig_next(const struct sg_instance *in, uint32_t gpu, uint32_t from);
/* Makes the caller, a client without memory, a user of that compute instance; false when it is not there. */
bool sg_mig_enter(struct sg_instance *in, uint32_t place);

#endif
