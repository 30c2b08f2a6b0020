/*
 * Allocations that are known by their address: linear, pitched and managed memory, and the blocks
 * that they touch.
 */
#ifndef DIVVY_CUDA_MEMORY_LINEAR_H
#define DIVVY_CUDA_MEMORY_LINEAR_H

#include "cuda/memory/reservation.h"
#include "cuda/table.h"

/* Notes what the driver gave for the reservation and settles it. False if there is no memory for
 * the note: the reservation is settled to nothing, and the caller gives the memory back to the
 * driver. */
DV_HIDDEN bool linear_keep(struct reservation *reservation, uint64_t address, uint64_t bytes);

/* An allocation that is being freed. */
struct freeing {
    uint64_t address;
    struct entry note;
    uint64_t alone; /* bytes of blocks that go with it whatever else is leaving them */
    uint64_t
        retired; /* bytes of blocks that are its own, pending in the ledger until it is freed */
};

/* Before the driver frees an allocation: takes it out, so that a thread that gets the address next
 * finds it free. False if it is none of these. Then one of the two. */
DV_HIDDEN bool linear_take(uint64_t address, struct freeing *freeing);
/* The driver has freed it. */
DV_HIDDEN void linear_freed(const struct freeing *freeing);
/* The driver refused. */
DV_HIDDEN void linear_put_back(const struct freeing *freeing);

/* Most frees need less: an address inside a block can, as a rule, only be that of an allocation
 * that is counted in its block. Which of them it was does not matter, so the count may follow the
 * free. */
DV_HIDDEN bool linear_is_counted(uint64_t address);
DV_HIDDEN void linear_counted_freed(uint64_t address);

/* Tells owner and device of an allocation, if it is one of these. A small one is known by its
 * block: any address in it counts, and the driver judges it. */
DV_HIDDEN bool linear_find(uint64_t address, struct entry *note);

/* Marks the allocation of so many bytes at address, of which the share takes over the fully covered
 * blocks from this process, because other processes can open them; its free gives back only the
 * others. False if it is none of ours or is marked already; else *note describes it. */
DV_HIDDEN bool linear_mark_exported(uint64_t address, uint64_t bytes, struct entry *note);
DV_HIDDEN void linear_unmark_exported(uint64_t address);

/* The driver gave an address that was noted as in use, so what was there had been freed unseen. */
EVENT(linear_reused, (uint64_t address));

/* The driver has freed an allocation that was marked as exported. */
EVENT(export_freed, (uint64_t address));

/* A context has ended, and all its memory with it. */
DV_HIDDEN void linear_context_ended(uint32_t owner);

#endif
