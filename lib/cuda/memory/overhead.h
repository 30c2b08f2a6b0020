/*
 * Memory that contexts and modules take beside what the program allocates.
 *
 * Before a process's first context is made, the configured estimate is reserved. After that the
 * overhead is what the driver's NVML reports for this process minus all other charges, or the
 * estimate if NVML hides the figure.
 *
 * What it takes later, the agent sees on the driver's list. While no agent does, the process asks
 * NVML itself: when a module is loaded or a limit of a context changes, and if that was too often,
 * before the next allocation is decided. Growth that is measured is charged even past the limit;
 * later allocations are refused then.
 */
#ifndef DIVVY_CUDA_MEMORY_OVERHEAD_H
#define DIVVY_CUDA_MEMORY_OVERHEAD_H

#include "cuda/event.h"
#include "cuda/memory/reservation.h"

/* The first context of this process on a device is about to be made. Listeners may wait. */
EVENT(context_wanted, (unsigned device));

/* Around a driver call that may make a context: reserves for it, and settles after its answer.
 * made tells whether there is a new one. */
DV_HIDDEN CUresult overhead_open(struct reservation *reservation, CUdevice device);
DV_HIDDEN void overhead_settle(struct reservation *reservation, bool made, CUresult result);

/* A context was made without us; a context was destroyed. */
DV_HIDDEN void overhead_appeared(unsigned device);
DV_HIDDEN void overhead_ended(unsigned device);

/* The overhead of a device may have changed; lessened: may be less. The driver has carried out what
 * changed it. */
DV_HIDDEN void overhead_look(unsigned device);
DV_HIDDEN void overhead_lessened(unsigned device);

#endif
