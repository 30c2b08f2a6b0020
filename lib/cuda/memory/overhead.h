/*
 * Memory that contexts and modules take beside what the program allocates.
 *
 * Before a context is made, the configured estimate is reserved. After that the overhead is what
 * the driver's NVML reports for this process minus all other charges, or the estimate if NVML hides
 * the figure. It is measured again when a module is loaded or a limit of a context changes. Growth
 * that is measured is charged even past the limit; later allocations are refused then.
 */
#ifndef DIVVY_CUDA_MEMORY_OVERHEAD_H
#define DIVVY_CUDA_MEMORY_OVERHEAD_H

#include "cuda/event.h"
#include "cuda/memory/reservation.h"

/* The first context of this process on a device is about to be made. Listeners may wait. */
EVENT(context_wanted, (unsigned device));

/* Around a driver call that may make a context: reserves for it, and settles. made tells whether
 * there is a new one. */
DV_HIDDEN CUresult overhead_open(struct reservation *reservation, CUdevice device);
DV_HIDDEN void overhead_settle(struct reservation *reservation, bool made);

/* A context was made without us; a context was destroyed. */
DV_HIDDEN void overhead_appeared(unsigned device);
DV_HIDDEN void overhead_ended(unsigned device);

/* Measures the overhead on a device on which this process has a context. Changes nothing if it
 * cannot be measured. */
DV_HIDDEN void overhead_measure(unsigned device);

#endif
