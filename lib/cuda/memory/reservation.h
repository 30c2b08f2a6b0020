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

#include "abi/generated/page_layout.h"
#include "cuda/context.h"
#include "cuda/driver.h"
#include "cuda/event.h"

/* In a swap share a GPU has two accounts: linear, pitched and managed memory is charged to its number
 * in the share, all that never leaves the GPU to dv_share_kept of it. In any other share the two are
 * one. */
struct reservation {
    struct home home;
    unsigned account; /* the number under which it is charged */
    uint64_t bytes;
};

/* A reservation did not fit. Some memory goes back to the driver without a call that says so: pools
 * shrink at synchronisation, graphs keep memory for their next launch. Listeners ask the driver
 * what they hold on the device now, charge that, and set *less if they gave charges back. */
EVENT(memory_short, (unsigned device, bool *less));

/* Memory is about to be reserved for the program, in a share that has turns or may be suspended. A
 * listener may wait. */
EVENT(memory_wanted, (void));

/* Where the flags of the first GPU's budget stand. Until there is a share it is as if it had turns. */
DV_HIDDEN extern const uint32_t *reservation_flags;

/* Whether reservation_open has more to do than reservation_open_now: in a share that has turns, as a
 * swap share does, or may be suspended, and before there is a share. The one branch that other shares
 * pay. */
static inline bool reservation_turns(void) {
    const uint32_t *word = __atomic_load_n(&reservation_flags, __ATOMIC_ACQUIRE);
    return __builtin_expect(__atomic_load_n(word, __ATOMIC_RELAXED) & DV_PAGE_BUDGET_TURNS, 0);
}

/* A call is about to be made that the driver would block while the share is suspended. */
DV_HIDDEN void reservation_wanted(void);

/* Reserves linear memory on the device of the calling thread's current context.
 * CUDA_ERROR_OUT_OF_MEMORY if worst bytes do not fit into the limit, CUDA_ERROR_SYSTEM_NOT_READY
 * without a share, and what the driver says of the current context if there is none. Nothing is
 * reserved then. */
DV_HIDDEN CUresult reservation_open(struct reservation *reservation, uint64_t worst);
DV_HIDDEN CUresult reservation_open_now(struct reservation *reservation, uint64_t worst);

/* The same for memory that never leaves the GPU. */
DV_HIDDEN CUresult reservation_open_kept(struct reservation *reservation, uint64_t worst);

/* Reserves such memory on a device that the call names. The current context does not matter. */
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

/* The same in an account. */
DV_HIDDEN CUresult reservation_open_account(struct reservation *reservation, unsigned account,
                                            uint64_t worst);

/* Ends the reservation. charged may be more than what was reserved. */
DV_HIDDEN void reservation_settle(struct reservation *reservation, uint64_t charged);

/* Ends the reservation of a call that the driver has answered, with nothing charged. An answer for
 * want of memory is counted if something was reserved. */
DV_HIDDEN void reservation_fail(struct reservation *reservation, CUresult result);

/* Charges memory that never leaves the GPU and that nobody reserved, also past the limit; gives such
 * memory back. */
DV_HIDDEN void reservation_charge(unsigned device, uint64_t bytes);
DV_HIDDEN void reservation_release(unsigned device, uint64_t bytes);

/* Gives back bytes of an account. */
DV_HIDDEN void reservation_release_account(unsigned account, uint64_t bytes);

#endif
