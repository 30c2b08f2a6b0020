/*
 * Which blocks of device memory are in use by how many allocations, and so are charged.
 *
 * A block's entry, under its address + 1, counts the allocations that lie in it partly or wholly.
 * Those that lie wholly in one block and belong to the block's context are counted and nothing
 * else: what a free needs to know of them is the block's. So a small allocation costs lookups among
 * few entries, however many there are. The others have entries of their own, which linear.c keeps
 * under their addresses in the same table, and count as edges in the blocks that they cover partly.
 *
 * The first allocation in a block brings the block's charge. A free takes its allocation out before
 * the driver is called and is counted as leaving until the driver has answered; as long as one is
 * leaving the driver may hold the block. So the charge of a block that only leaving frees are in is
 * owed: it goes with the last of them. An allocation that comes meanwhile brings a charge anew.
 */
#ifndef DIVVY_CUDA_MEMORY_OCCUPANCY_H
#define DIVVY_CUDA_MEMORY_OCCUPANCY_H

#include "cuda/memory/blocks.h"
#include "cuda/table.h"
#include "substitute/substitute.h"

/* Blocks and what begins in them; a block and its allocations are in one shard. */
DV_HIDDEN extern table occupancy;

static inline uint64_t block_of(uint64_t address) {
    return address & ~(BLOCK_BYTES - 1);
}
static inline struct shard *occupancy_shard(uint64_t address) {
    return table_shard(&occupancy, address / BLOCK_BYTES);
}

/* The amount of a block's entry: small allocations that are only counted, and edges. A block has
 * 8192 grains, so neither passes 16 bits. */
#define SMALL 1u
#define SMALL_MASK 0xffffu
#define EDGE 0x10000u

/* Counts a small allocation, as note describes it; *added is the bytes to charge. False if it
 * cannot be without an entry, or there is no memory. */
DV_HIDDEN bool small_enter(uint64_t block, const struct entry *note, uint64_t *added);

/* What an address stands for, the shard being held: an entry of its own, or else the entry of its
 * block if small allocations are counted there; NULL if neither. *own tells which. */
DV_HIDDEN struct entry *occupant_find(struct shard *s, uint64_t address, bool *own);

/* Says that an allocation that begins in the block has an entry of its own. The shard is held. */
DV_HIDDEN void block_has_own(struct shard *s, uint64_t address);

/* Takes one out and counts it as leaving. Returns what goes with this one's leaving alone: the
 * block's charge where another is owed for it already. */
DV_HIDDEN uint64_t small_freeing(struct entry *block);

/* Takes one out that the driver has freed already. Returns the bytes to give back, of *device. */
DV_HIDDEN uint64_t small_gone(uint64_t address, unsigned *device);

/* The driver has answered. Returns the bytes that were owed for the block if no other is leaving.
 */
DV_HIDDEN uint64_t block_freed(uint64_t block);

/* The same for the edges of an allocation. edges_enter enters all or none. */
DV_HIDDEN bool edges_enter(const struct span *span, uint64_t *added);
DV_HIDDEN uint64_t edges_freeing(const struct span *span);
DV_HIDDEN uint64_t edges_freed(const struct span *span);

/* Takes edges out of which the driver knows nothing any more; returns the bytes to give back. */
DV_HIDDEN uint64_t edges_drop(const struct span *span);

#endif
