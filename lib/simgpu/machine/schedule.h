/* The simulated GPUs' time. Part of state.h. */
#ifndef SIMGPU_MACHINE_SCHEDULE_H
#define SIMGPU_MACHINE_SCHEDULE_H

#include <stdint.h>

#include "simgpu/machine/engines.h"
#include "simgpu/machine/limits.h"

struct sg_instance;

#define SG_SEGMENTS 4096u /* pieces of a channel's past that its owner can still look up */
#define SG_SAMPLES 64u    /* utilisation samples kept, about 10 s */
#define SG_SAMPLE_NS                                                                               \
    166666667ull         /* NVML's documented utilisation sample period: 1/6 s at the least */
#define SG_GROUP_MAX 64u /* members of a group that run at once */
#define SG_FULL_RATE (UINT64_C(1) << 32) /* of a channel that goes as fast as time */

/* A stretch of time in which a channel had its GPU, alone or as one of a group. */
struct sg_segment {
    uint64_t wall;   /* when it began */
    uint64_t done;   /* the channel's executed work at that moment */
    uint64_t length; /* how long it was */
    uint64_t rate;   /* how fast the channel went: a part of SG_FULL_RATE */
};

/* A process's work on one GPU. A position is the time for which the process would have executed
   something with the multiprocessors that it may have to itself. */
struct sg_channel {
    uint64_t submitted; /* the position at which all work given so far ends */
    uint64_t executed;  /* the position reached: outside groups the process's true GPU time */
    uint64_t fraction;  /* of the position, beyond executed: a part of SG_FULL_RATE */
    uint64_t sm_ns;     /* multiprocessors occupied, times for how long */
    uint64_t slice_ns;  /* time slice; 0 takes the machine's */
    uint64_t segment_count;
    uint32_t server; /* client slot + 1 of the MPS server of whose group it is; 0 without */
    uint32_t pad;
    uint64_t samples[SG_SAMPLES]; /* executed at sample boundary k, at index k % SG_SAMPLES */
    struct sg_segment segments[SG_SEGMENTS];
    struct sg_engines engines; /* the schedule lock; made by sg_channel_start */
};

/* A member of the party that has the GPU, as it was before a step of the schedule. */
struct sg_step_member {
    uint32_t client, pad;
    uint64_t executed, fraction, sm_ns, segment_count;
    struct sg_segment segment; /* its last one */
};

/* What a step of the schedule changes, as it was before the step. Who takes the schedule lock over
 * from a process that died in a step restores it. */
struct sg_step {
    uint32_t under_way;
    uint32_t current, count, pad;
    uint64_t clock, slice_left, busy_ns, sm_ns;
    struct sg_step_member members[SG_GROUP_MAX];
};

/* schedule.c. `now` is the instance's time. */
/* Tells how many multiprocessors the GPU has, and how many of them the caller may occupy at once.
 * Before the first work; again for other work than was given so far. */
void sg_channel_start(struct sg_instance *in, uint32_t gpu, uint32_t multiprocessors,
                      uint32_t usable);
/* Decides the schedule of a GPU up to now. */
void sg_advance(struct sg_instance *in, uint32_t gpu, uint64_t now);
/* The same with the schedule lock held. */
void sg_advance_locked(struct sg_instance *in, uint32_t gpu, uint64_t now);
/* Undoes the step that a holder of the schedule lock died in. */
void sg_schedule_repair(struct sg_instance *in, uint32_t gpu);
/* Makes a client one of the group whose server has that slot, or with SG_CLIENTS_MAX of none. Members
 * of a group run side by side in one turn. */
void sg_group_join(struct sg_instance *in, uint32_t gpu, uint32_t client, uint32_t server);
/* Drops the work of a client; the schedule lock. */
void sg_drop_locked(struct sg_instance *in, uint32_t gpu, uint32_t client);
/* Gives the caller's channel work that can run from `now` on; returns the position at which it ends:
 * it is done when the channel's executed reaches that. */
struct sg_work;
uint64_t sg_submit(struct sg_instance *in, uint32_t gpu, uint64_t now, const struct sg_work *work);
/* The same with the schedule lock held and the schedule decided. */
uint64_t sg_give_locked(struct sg_instance *in, uint32_t gpu, const struct sg_work *work);
/* Decides up to `now` and returns the moment at which the caller's channel reached the position; 0
 * when it has not, and then *left is the least time until it does. */
uint64_t sg_reached(struct sg_instance *in, uint32_t gpu, uint64_t now, uint64_t position,
                    uint64_t *left);

#endif
