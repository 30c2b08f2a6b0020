/*
 * Which blocks of device memory are charged, because allocations lie in them.
 *
 * A block's entry, under its address + 1, counts the allocations that lie in it partly or wholly.
 * An allocation that lies in one block and belongs to the block's context is only counted, because
 * the block tells all that its free needs to know. So the table stays small however many small
 * allocations there are. The other allocations have entries of their own, which linear.c keeps
 * under their addresses in the same table. They count as edges in the blocks that they cover
 * partly.
 *
 * The first allocation in a block charges the block. A free takes its allocation out before it
 * calls the driver, and is under way until the driver has answered. Until then the driver may hold
 * the block. So a block without allocations stays charged while frees are under way in it; its
 * charge is owed and given back with the last of them. An allocation that comes meanwhile charges
 * the block again.
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

/* The amount of a block's entry holds two counts: small allocations, and edges. A block has 8192
 * grains, so each fits into 16 bits. */
#define SMALL 1u
#define SMALL_MASK 0xffffu
#define EDGE 0x10000u

/* Bits of a block's flags in which stands to which device it is charged. */
#define BLOCK_DEVICE_SHIFT 8u
#define BLOCK_DEVICE_BITS 4u
#define BLOCK_DEVICE_MASK ((1u << BLOCK_DEVICE_BITS) - 1)
static inline unsigned block_charged_to(const struct entry *block) {
    return block->flags >> BLOCK_DEVICE_SHIFT & BLOCK_DEVICE_MASK;
}

/* The charge of a block that is to be given back, 0 bytes for none, and the device to which it was charged. */
struct owed {
    uint64_t bytes;
    unsigned device;
};

/* The bytes, if they are owed to this device. Those of another one are given back at once. The caller holds no shard. */
DV_HIDDEN uint64_t owed_to(struct owed owed, unsigned device);

/* Counts a small allocation, which note describes. *added is the bytes to charge. False if it needs
 * an entry of its own, or if there is no memory. */
DV_HIDDEN bool small_enter(uint64_t block, const struct entry *note, uint64_t *added);

/* Finds the entry of an address (*own is true), or else the entry of its block if small allocations
 * are counted there. NULL if there is neither. The caller holds the shard. */
DV_HIDDEN struct entry *occupant_find(struct shard *s, uint64_t address, bool *own);

/* Notes that an allocation that begins in the block has an entry. The caller holds the shard. */
DV_HIDDEN void block_has_own(struct shard *s, uint64_t address);

/* Takes a small allocation out and counts its free as under way. Returns what this free gives back by itself: the charge of
 * the block, if another charge of it is owed already. */
DV_HIDDEN struct owed small_freeing(struct entry *block);

/* Takes out a small allocation that the driver has freed already. Returns the bytes to give back on
 * *device. */
DV_HIDDEN uint64_t small_gone(uint64_t address, unsigned *device);

/* The driver has answered a free of memory of the device. If this was the last free under way in the block, gives back what is
 * owed for it: returns the bytes if that is owed to the device. */
DV_HIDDEN uint64_t block_freed(uint64_t block, unsigned device);

/* The same three steps for the edges of an allocation. edges_enter enters all edges or none. */
DV_HIDDEN bool edges_enter(const struct span *span, unsigned device, uint64_t *added);
DV_HIDDEN uint64_t edges_freeing(const struct span *span, unsigned device);
DV_HIDDEN uint64_t edges_freed(const struct span *span, unsigned device);

/* Takes out the edges of an allocation that the driver no longer has. Returns the bytes to give
 * back. */
DV_HIDDEN uint64_t edges_drop(const struct span *span, unsigned device);

#endif
