/*
 * Memory that is reserved for an allocation while the driver makes it.
 *
 *     struct reservation reservation;
 *     result = reservation_open(&reservation, worst);   // before the driver is asked
 *     if (result != CUDA_SUCCESS)
 *         return result;
 *     result = DV_CALL(...);
 *     reservation_settle(&reservation, really_taken);   // reservation_fail if the driver refused
 */
#ifndef DIVVY_CUDA_MEMORY_RESERVATION_H
#define DIVVY_CUDA_MEMORY_RESERVATION_H

#include "cuda/context.h"
#include "cuda/driver.h"
#include "cuda/event.h"

struct reservation {
    struct home home;
    uint64_t bytes;
};

/* A reservation did not fit. Some memory goes back to the driver without a call that says so: pools
 * shrink at synchronisation, graphs keep memory for their next launch. Listeners ask the driver
 * what they hold on the device now, charge that, and set *less if they gave charges back. */
EVENT(memory_short, (unsigned device, bool *less));

/* Reserves on the device of the calling thread's current context. CUDA_ERROR_OUT_OF_MEMORY if worst
 * bytes do not fit into the limit, CUDA_ERROR_SYSTEM_NOT_READY without a share, and what the driver
 * says of the current context if there is none. Nothing is reserved then. */
DV_HIDDEN CUresult reservation_open(struct reservation *reservation, uint64_t worst);

/* Reserves on a device that the call names. The current context does not matter. */
DV_HIDDEN CUresult reservation_open_on(struct reservation *reservation, CUdevice device,
                                       uint64_t worst);
DV_HIDDEN CUresult reservation_open_number(struct reservation *reservation, unsigned number,
                                           uint64_t worst);

/* The same for one of several ways to serve an allocation: who tries does not count a refusal. If
 * none fits, reservation_refused does, with what the allocation could have taken. */
DV_HIDDEN CUresult reservation_try_number(struct reservation *reservation, unsigned number,
                                          uint64_t worst);
DV_HIDDEN void reservation_refused(unsigned device, uint64_t bytes);

/* Why a device is not of the share: what the driver says while it is not initialised, else
 * CUDA_ERROR_INVALID_DEVICE. */
DV_HIDDEN CUresult reservation_why_unknown(void);

/* Ends the reservation. charged may be more than what was reserved. */
DV_HIDDEN void reservation_settle(struct reservation *reservation, uint64_t charged);

/* Ends the reservation of a call that the driver has answered, with nothing charged. An answer for
 * want of memory is counted if something was reserved. */
DV_HIDDEN void reservation_fail(struct reservation *reservation, CUresult result);

/* Gives back bytes that were charged. */
DV_HIDDEN void reservation_release(unsigned device, uint64_t bytes);

#endif
