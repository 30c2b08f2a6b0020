/*
 * Bytes of swapped memory on their way to or from one GPU, by prefetches in a stream of ours: to the
 * host what was used longest ago first, to the GPU what was used last.
 *
 * A few pieces are under way at a time, so that the link is busy and a change of mind is cheap. What
 * is believed to be on the GPU is the end of an allocation. Others may have displaced it while they
 * had the GPU, of which the driver tells nobody. So it is given to the driver too when it should be
 * there, which skips what is; it does not count as moved, nor the time that it takes.
 */
#ifndef DIVVY_CUDA_TIME_MOVE_H
#define DIVVY_CUDA_TIME_MOVE_H

#include "cuda/memory/swapped.h"
#include "cuda/time/ways.h"
#include "share/share.h"

enum move_way { MOVE_OUT, MOVE_IN };

struct move {
    dv_share *share;
    unsigned number;
    enum move_way direction;
    uint64_t rest;    /* bytes that may still be given to the driver */
    uint64_t doubted; /* the same of what is believed to be on the GPU, for the second pass */
    uint64_t since;   /* only what was used in this period or later comes to the GPU */
    struct swapped_list list;
    size_t at;
    /* The second pass. To the host goes what no call has named, because nobody knows whether it is
     * there; to the GPU what is believed to be there, because others may have displaced it. */
    bool again;
    uint32_t ended;        /* ways_ended when it began */
    unsigned first, count; /* marks under way */
    uint64_t bytes[WAY_MARKS];
    uint64_t moved, began, last; /* what was not told yet: bytes, since and until when */
};

/* Plans to move at most so many bytes. */
DV_HIDDEN void move_begin(struct move *move, dv_share *share, unsigned number,
                          enum move_way direction, uint64_t bytes, uint64_t since);

/* Goes on; true when all is done or nothing more can be. `stop`: gives the driver no more. */
DV_HIDDEN bool move_go_on(struct move *move, bool stop);

/* Tells what was moved since it was told last. */
DV_HIDDEN void move_end(struct move *move);

#endif
