/*
 * Allocations that are known by their address: linear, pitched and managed memory.
 */
#ifndef DIVVY_CUDA_MEMORY_LINEAR_H
#define DIVVY_CUDA_MEMORY_LINEAR_H

#include "cuda/memory/blocks.h"
#include "cuda/memory/reservation.h"
#include "cuda/table.h"

/* Notes the allocation that the driver made and settles its reservation. False if there is no
 * memory for the note: the reservation is then settled to nothing, and the caller frees the
 * allocation. */
DV_HIDDEN bool linear_keep(struct reservation *reservation, uint64_t address, uint64_t bytes);

/* An allocation that is being freed. */
struct freeing {
    uint64_t address;
    struct entry note;
    uint64_t alone; /* bytes of blocks to give back, whichever frees are still under way in them */
    uint64_t
        retired; /* bytes of blocks that it covers alone, pending in the ledger until it is freed */
};

/* Takes an allocation out before the driver frees it, because another thread may get the address at
 * once. False if it is not noted here. After the driver's answer the caller calls linear_freed or
 * linear_put_back. */
DV_HIDDEN bool linear_take(uint64_t address, struct freeing *freeing);
/* The driver has freed it. */
DV_HIDDEN void linear_freed(const struct freeing *freeing);
/* The driver refused. */
DV_HIDDEN void linear_put_back(const struct freeing *freeing);

/* Most frees need less. An address inside a block is, as a rule, that of an allocation that is only
 * counted in its block. It does not matter which of them it is, so the count can be changed after
 * the free. */
DV_HIDDEN extern uint32_t linear_within;
static inline bool linear_is_counted(uint64_t address) {
    return address % BLOCK_BYTES != 0 && __atomic_load_n(&linear_within, __ATOMIC_ACQUIRE) == 0;
}
DV_HIDDEN void linear_counted_freed(uint64_t address);

/* Tells owner and device of an allocation that is noted here. A small allocation is known by its
 * block only: every address in the block is found, and the driver decides whether it is valid. */
DV_HIDDEN bool linear_find(uint64_t address, struct entry *note);

/* Marks an allocation as exported: other processes can open it, so the share takes over the charge
 * of the blocks that it covers alone, and its free gives back only the others. False if the
 * allocation is not ours or is marked already; else *note describes it. */
DV_HIDDEN bool linear_mark_exported(uint64_t address, uint64_t bytes, struct entry *note);
DV_HIDDEN void linear_unmark_exported(uint64_t address);

/* The driver gave an address that was noted as in use, so what was there had been freed unseen. */
EVENT(linear_reused, (uint64_t address));

/* The driver has freed an allocation that was marked as exported. */
EVENT(export_freed, (uint64_t address));

/* A context has ended, and all its memory with it. */
DV_HIDDEN void linear_context_ended(uint32_t owner);

#endif
