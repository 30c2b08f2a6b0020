/*
 * Copies and memsets, and which of them are work of the GPU itself.
 *
 * The multiprocessors do, as a rule, a copy within the device: it counts as a launch whose cost is
 * learned by its bytes. Copy engines do a copy to or from the host: it costs no GPU time and waits
 * for no budget. But work that follows it in the stream follows later, and without a stream the call
 * returns only when all work before it is done. Each of them waits for the share's turn.
 */
#ifndef DIVVY_CUDA_TIME_COPY_H
#define DIVVY_CUDA_TIME_COPY_H

#include "cuda/time/launch.h"

/* What is to be moved. */
struct move {
    enum cost_kind kind; /* COST_COPY or COST_SET; 0: it crosses */
    uint64_t bytes;
};

/* One under way. */
struct copy {
    bool crosses, blocks;
    struct launch launch;
    struct wait wait; /* of one that crosses and blocks */
    uint64_t since;   /* the same */
};

/* Fails if the copy waited, and its stream ended meanwhile. */
DV_HIDDEN CUresult copy_begin(struct copy *copy, CUstream stream, struct move move, bool blocks);
DV_HIDDEN void copy_end(struct copy *copy, CUresult result);

/* Whether an address is on the device. Asks the driver about addresses that we did not give out. */
DV_HIDDEN bool copy_on_device(uint64_t address);

static inline struct move move_within(uint64_t bytes) {
    return (struct move){COST_COPY, bytes};
}
static inline struct move move_filling(uint64_t bytes) {
    return (struct move){COST_SET, bytes};
}
static inline struct move move_crossing(void) {
    return (struct move){0, 0};
}

#endif
