/*
 * Memory pools: what a pool keeps from the GPU is charged, not what is handed out of it.
 *
 * A pool grows when a request does not fit into what it keeps, and shrinks when something
 * synchronises, when it is trimmed, or at its end. Its CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT is read
 * after each of these and the charge follows. Growth is reserved for in the pool's steps before the
 * request. A request that the pool can serve from what it keeps is let through even if the limit
 * leaves no room for a step; should the pool grow all the same, the memory goes straight back.
 *
 * Allocations are noted by address, so that the end of a pool that was destroyed while some were in
 * use is seen.
 */
#ifndef DIVVY_CUDA_MEMORY_POOL_H
#define DIVVY_CUDA_MEMORY_POOL_H

#include "cuda/memory/reservation.h"
#include "cuda/table.h"

/* A pool that this process uses. Pools are found by handle and never move. */
struct pool;

/* Notes a pool on a device of the share, or (charged false) one whose memory is not this process's
 * to be charged: on the host, or another process's, of which imports are charged one by one. */
DV_HIDDEN struct pool *pool_note(CUmemoryPool handle, unsigned device, bool charged);

/* The pool with this handle; one that this library did not see made is noted. NULL if the driver
 * does not know it, there is no room to note it, or it is on a GPU outside the share. */
DV_HIDDEN struct pool *pool_find(CUmemoryPool handle);

/* Around an allocation. */
DV_HIDDEN CUresult pool_open(struct pool *pool, struct reservation *reservation, size_t bytes);
/* The driver gave address: settles. CUDA_ERROR_OUT_OF_MEMORY if it has to go back. */
DV_HIDDEN CUresult pool_keep(struct pool *pool, struct reservation *reservation,
                             CUdeviceptr address);

/* Whether any allocation out of a pool is noted. */
DV_HIDDEN bool pools_have_pointers(void);

/* Takes the note of an allocation out before it is freed; false if it is not a pool's. */
DV_HIDDEN bool pool_take(CUdeviceptr address, struct entry *note);
DV_HIDDEN void pool_put_back(CUdeviceptr address, struct entry note);
DV_HIDDEN void pool_freed(struct entry note);

/* Charges what the pool keeps now. True if less than before. */
DV_HIDDEN bool pool_reread(CUmemoryPool handle);

/* Before and after the driver destroys a pool: from before on it is not read. What is in use keeps
 * the pool's memory until it is freed. NULL if the pool is not known. */
DV_HIDDEN struct pool *pool_ending(CUmemoryPool handle);
DV_HIDDEN void pool_ended(struct pool *pool, CUmemoryPool handle, bool destroyed);

/* After a synchronisation: all pools that hold something. */
DV_HIDDEN void pools_synchronised(void);

#endif
