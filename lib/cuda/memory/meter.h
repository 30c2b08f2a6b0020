/*
 * A figure of the driver about memory that it holds (for a pool, for graphs), and the charge that
 * follows that figure.
 */
#ifndef DIVVY_CUDA_MEMORY_METER_H
#define DIVVY_CUDA_MEMORY_METER_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/lock.h"

struct meter {
    lock lock;
    uint32_t readings; /* raised with every change of held */
    uint64_t held;     /* bytes charged */
};

/* Reads the figure with read(arg) and stores it in held. Returns the difference, which the caller
 * charges or releases. 0 if the driver does not answer. */
int64_t meter_follow(struct meter *meter, bool (*read)(void *arg, uint64_t *bytes), void *arg);

/* What is measured has ended. Returns what was held; a reading under way is ignored. */
uint64_t meter_end(struct meter *meter);

#endif
