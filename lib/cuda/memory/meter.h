/*
 * A figure that the driver keeps of memory it holds for itself (a pool, the memory of graphs), and
 * the charge that follows it.
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

/* Asks the driver for the figure with read(arg) and makes it what is held; returns the difference,
 * which the caller charges or releases. 0 if the driver does not answer. */
int64_t meter_follow(struct meter *meter, bool (*read)(void *arg, uint64_t *bytes), void *arg);

/* What is measured has ended: returns what was held. A reading under way counts no more. */
uint64_t meter_end(struct meter *meter);

#endif
