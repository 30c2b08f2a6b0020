/*
 * The work of this process on one GPU, as it is reported to the arbiter: the times in which any
 * stream had measured work, and what was charged for that work.
 *
 * Streams report pieces when they read them, which is not the order in which the GPU did them. So a
 * piece is published only up to the horizon: the earliest moment at which a piece that is still to
 * be read may begin.
 */
#ifndef DIVVY_CUDA_TIME_GPU_H
#define DIVVY_CUDA_TIME_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/lock.h"
#include "share/time.h"
#include "substitute/substitute.h"

#define GPU_PIECES 64u
#define GPU_WAITERS                                                                                \
    16u /* launches of raised priority that wait at once; of more, some are not noted */

struct piece {
    uint64_t begin, end; /* CLOCK_MONOTONIC ns */
    uint64_t charged;    /* ns */
};

/* A launch that waits; see precedence.h. Atomic. */
struct waiter {
    uint64_t until; /* CLOCK_MONOTONIC ns */
    int priority;
};

struct gpu {
    dv_share *share;
    lock lock;
    unsigned number;
    unsigned piece_count;
    struct piece pieces[GPU_PIECES]; /* apart from each other, in order */
    uint64_t told;                   /* end of what was published last */
    uint64_t inside;     /* charged for pieces within a time that was published before */
    uint64_t open_since; /* since when the arbiter knows of open work, 0: it knows of none */
    /* Read and written without the lock. */
    uint64_t pulse;       /* until when neighbours were told that there is work */
    uint64_t stuck_until; /* until then the depth of the budget is ignored */
    struct waiter waiters[GPU_WAITERS];
};

/* A GPU of the share, by its number; NULL if there is no such. */
DV_HIDDEN struct gpu *gpu_at(unsigned number);

/* Adds a finished piece. */
DV_HIDDEN void gpu_add(struct gpu *gpu, struct piece piece);

/* Publishes what lies before the horizon (UINT64_MAX: all). If `open`, also says that work is open
 * from the horizon until about `until`. */
DV_HIDDEN void gpu_tell(struct gpu *gpu, uint64_t horizon, bool open, uint64_t until);

/* Whether several pieces wait for an older one, so that the caller should read more flights. */
DV_HIDDEN bool gpu_is_behind(struct gpu *gpu);

/* Reports ns that were charged for launches that are not measured. */
DV_HIDDEN void gpu_unmeasured(struct gpu *gpu, uint64_t ns);

#endif
