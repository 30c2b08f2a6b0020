/*
 * Memory pools. What a pool holds of the GPU is charged, not what the program gets out of the pool.
 *
 * A pool grows when a request does not fit into what it holds. It shrinks at synchronisation, when
 * it is trimmed, and at its end. After each of these CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT tells
 * what it holds now, and the charge is changed to that. Before a request one step of growth is
 * reserved. If the limit leaves no room for a step, a request that the pool can serve from what it
 * holds is let through; if the pool grows all the same, the allocation is freed at once.
 *
 * Allocations are noted by address, because a pool that was destroyed holds its memory until the
 * last of them is freed.
 */
#ifndef DIVVY_CUDA_MEMORY_POOL_H
#define DIVVY_CUDA_MEMORY_POOL_H

#include "cuda/memory/reservation.h"
#include "cuda/table.h"

/* A pool that this process uses. Pools are found by handle and never move. */
struct pool;

/* Notes a pool on a device of the share. charged is false for a pool on the host and for a pool of
 * another process, whose allocations are charged one by one when they are imported. */
DV_HIDDEN struct pool *pool_note(CUmemoryPool handle, unsigned device, bool charged);

/* The current pool of a device, whose number in the share is given too. NULL, and still success, if
 * there is no room to note it. */
DV_HIDDEN CUresult pool_current(struct pool **pool, CUdevice device, unsigned number);

/* The pool with this handle; one that this library did not see made is noted. NULL if the driver
 * does not know it, there is no room to note it, or it is on a GPU outside the share. */
DV_HIDDEN struct pool *pool_find(CUmemoryPool handle);

/* Around an allocation. */
DV_HIDDEN CUresult pool_open(struct pool *pool, struct reservation *reservation, size_t bytes);
/* The driver gave this address. Settles the reservation; CUDA_ERROR_OUT_OF_MEMORY if the caller has
 * to free the allocation. */
DV_HIDDEN CUresult pool_keep(struct pool *pool, struct reservation *reservation,
                             CUdeviceptr address);

/* Whether any allocation out of a pool is noted. Every free of device memory asks. */
DV_HIDDEN extern uint32_t pools_pointers;
static inline bool pools_have_pointers(void) {
    return __atomic_load_n(&pools_pointers, __ATOMIC_ACQUIRE) != 0;
}

/* Takes out the note of an allocation before it is freed. False if it is not of a pool. */
DV_HIDDEN bool pool_take(CUdeviceptr address, struct entry *note);
DV_HIDDEN void pool_put_back(CUdeviceptr address, struct entry note);
DV_HIDDEN void pool_freed(struct entry note);

/* Charges what the pool holds now. True if that is less than before. */
DV_HIDDEN bool pool_reread(CUmemoryPool handle);

/* Before and after the driver destroys a pool. From pool_ending on the driver is not asked about
 * it. Its memory stays charged until the allocations in use are freed. pool_ending returns NULL for
 * a pool that is not known. */
DV_HIDDEN struct pool *pool_ending(CUmemoryPool handle);
DV_HIDDEN void pool_ended(struct pool *pool, CUmemoryPool handle, bool destroyed);

/* After a synchronisation: all pools that hold something. */
DV_HIDDEN void pools_synchronised(void);

#endif
