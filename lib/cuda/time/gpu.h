/*
 * The work of this process on one GPU as the arbiter is told it: the times in which any stream had
 * measured work, without gap or overlap, and what was charged for it.
 *
 * Streams tell their pieces as they read them, which is not the order in which the GPU came to
 * them. A piece is published up to the horizon: the earliest moment at which a piece that is still
 * to be read may begin.
 */
#ifndef DIVVY_CUDA_TIME_GPU_H
#define DIVVY_CUDA_TIME_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/lock.h"
#include "share/time.h"
#include "substitute/substitute.h"

#define GPU_PIECES 64u

struct piece {
    uint64_t begin, end; /* CLOCK_MONOTONIC ns */
    uint64_t charged;    /* ns */
};

struct gpu {
    dv_share *share;
    lock lock;
    unsigned number;
    unsigned piece_count;
    struct piece pieces[GPU_PIECES]; /* apart from each other, in order */
    uint64_t told;                   /* end of what was published last */
    uint64_t inside;                 /* charged for pieces that lay in what was published already */
    uint64_t open_since;             /* what the arbiter knows, 0: nothing */
    /* Read and written without the lock. */
    uint64_t pulse;       /* until when neighbours know of work */
    uint64_t stuck_until; /* until then the depth of the budget does not count */
};

/* A GPU of the share, by its number; NULL if there is no such. */
DV_HIDDEN struct gpu *gpu_at(unsigned number);

/* Adds a finished piece. */
DV_HIDDEN void gpu_add(struct gpu *gpu, struct piece piece);

/* Publishes what lies before the horizon (UINT64_MAX: all), and that work is open from there, where
 * `open`, until about `until`. */
DV_HIDDEN void gpu_tell(struct gpu *gpu, uint64_t horizon, bool open, uint64_t until);

/* Whether pieces have been waiting for an older one, which then is to be looked for. */
DV_HIDDEN bool gpu_is_behind(struct gpu *gpu);

/* Charged for launches that nobody measures. */
DV_HIDDEN void gpu_unmeasured(struct gpu *gpu, uint64_t ns);

#endif
