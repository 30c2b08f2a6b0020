/*
 * An allocation under way: what was reserved for it, on which device, for which context.
 *
 *     struct claim claim;
 *     result = claim_open(&claim, worst);      the worst case, before the driver is asked
 *     if (result != CUDA_SUCCESS) return result;
 *     result = DV_CALL(...);
 *     claim_settle(&claim, really_taken);      0 if the driver refused
 */
#ifndef DIVVY_CUDA_MEMORY_RESERVATION_H
#define DIVVY_CUDA_MEMORY_RESERVATION_H

#include "cuda/context.h"
#include "cuda/driver.h"
#include "cuda/event.h"

struct claim {
    struct place place;
    uint64_t reserved; /* bytes */
};

/* A reservation did not fit. Some memory goes back to the driver without a call that says so: pools
 * shrink at synchronisation, graphs keep memory for their next launch. Listeners ask the driver
 * what they hold on the device now, charge that, and set *less if they gave charges back. */
EVENT(memory_short, (unsigned device, bool *less));

/* Reserves on the device of the calling thread's current context. CUDA_ERROR_OUT_OF_MEMORY if worst
 * bytes do not fit into the limit, CUDA_ERROR_SYSTEM_NOT_READY without a share, and what the driver
 * says of the current context if there is none. Nothing is reserved then. */
DV_HIDDEN CUresult claim_open(struct claim *claim, uint64_t worst);

/* The same on a device that the call names; contexts do not matter to what is allocated there. */
DV_HIDDEN CUresult claim_open_on(struct claim *claim, CUdevice device, uint64_t worst);
DV_HIDDEN CUresult claim_open_number(struct claim *claim, unsigned number, uint64_t worst);

/* Ends it; charged may pass what was reserved. */
DV_HIDDEN void claim_settle(struct claim *claim, uint64_t charged);

/* Gives bytes that were charged back. */
DV_HIDDEN void claim_release(unsigned device, uint64_t bytes);

#endif
