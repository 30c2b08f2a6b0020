/*
 * Copies and memsets: which of them are work of the GPU's own.
 *
 * What moves between two places on the device is done by the multiprocessors, as a rule: it is
 * counted as a launch, at a cost learned by its bytes. What crosses to or from the host is done by
 * copy engines: it costs no GPU time and never waits, but it takes its place in the stream, and
 * without a stream it returns only when all before it is done.
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
    struct wait wait;
};

DV_HIDDEN void copy_begin(struct copy *copy, CUstream stream, struct move move, bool blocks);
DV_HIDDEN void copy_end(struct copy *copy, CUresult result);

/* Whether an address is the device's, by what we gave out or else by the driver. */
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
