/*
 * What contexts and modules take of a GPU beside what was asked for.
 *
 * Before a context is made the configured estimate is reserved; after it, what the driver's NVML
 * reports for this process less what is charged otherwise becomes its overhead, or the estimate
 * where NVML hides the figure. Loading a module or changing a context's limits measures again.
 * Growth found by measuring is charged even past the limit and so refuses what comes after it.
 */
#ifndef DIVVY_CUDA_MEMORY_OVERHEAD_H
#define DIVVY_CUDA_MEMORY_OVERHEAD_H

#include "cuda/memory/reservation.h"

/* Around a driver call that may make a context: reserves, and settles with made = whether it did.
 */
DV_HIDDEN CUresult overhead_open(struct reservation *reservation, CUdevice device);
DV_HIDDEN void overhead_settle(struct reservation *reservation, bool made);

/* A context was made behind our back; one was destroyed. */
DV_HIDDEN void overhead_appeared(unsigned device);
DV_HIDDEN void overhead_ended(unsigned device);

/* Measures a device on which this process has a context; no change if nothing can be measured. */
DV_HIDDEN void overhead_measure(unsigned device);

/* Memory of this process became the share's by an export (bytes > 0), or was freed after that
 * (bytes < 0): the driver counts it as this process's as long as it is there. */
DV_HIDDEN void overhead_moved(unsigned device, int64_t bytes);

#endif
