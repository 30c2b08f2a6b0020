#include "cuda/memory/occupancy.h"

#include "cuda/memory/reservation.h"

/* Flags of a block's entry. */
#define OWED 1u
#define HAS_OWN 2u /* an address in the block has an entry too, as it has if there are edges */
/* Above them are the devices to which the block is charged, and to which it is owed. An address that one GPU frees may at
 * once be another's, and allocations of two be in one block for a moment. */
#define OWED_SHIFT (BLOCK_DEVICE_SHIFT + BLOCK_DEVICE_BITS)
_Static_assert(OWED_SHIFT + BLOCK_DEVICE_BITS <= 16,
               "two devices fit into the flags of a block's entry");
_Static_assert(DV_PAGE_DEVICES <= 1u << BLOCK_DEVICE_BITS,
               "a device fits into the flags of a block's entry");

table occupancy;

static void put_device(struct entry *block, unsigned shift, unsigned device) {
    unsigned others = block->flags & ~(BLOCK_DEVICE_MASK << shift);
    block->flags = (uint16_t)(others | device << shift);
}

/* Adds to the counts of a block. Returns the bytes to charge. */
static uint64_t count(struct entry *block, uint32_t what, unsigned device) {
    uint64_t added = 0;
    if (block->amount == 0) {
        put_device(block, BLOCK_DEVICE_SHIFT, device);
        added = BLOCK_BYTES;
    }
    block->amount += what;
    return added;
}

bool small_enter(uint64_t block, const struct entry *note, uint64_t *added) {
    struct shard *s = occupancy_shard(block);
    bool had, done = false;
    lock_take(&s->lock);
    struct entry *entry = shard_make(s, block + 1, &had);
    if (entry != NULL) {
        if ((entry->amount & SMALL_MASK) == 0) {
            entry->owner = note->owner;
            entry->device = note->device;
        }
        if (entry->owner == note->owner && entry->device == note->device) {
            *added = count(entry, SMALL, note->device);
            done = true;
        }
    }
    lock_give(&s->lock);
    return done;
}

/* The block's entry decides nearly always. A look-up of every address that is freed would touch
 * cache lines all over the table. */
struct entry *occupant_find(struct shard *s, uint64_t address, bool *own) {
    struct entry *block = shard_find(s, block_of(address) + 1);
    *own = false;
    if (block == NULL || block->amount > SMALL_MASK || block->flags & HAS_OWN) {
        struct entry *found = shard_find(s, address);
        *own = found != NULL;
        if (found != NULL || block == NULL) {
            return found;
        }
    }
    return (block->amount & SMALL_MASK) != 0 ? block : NULL;
}

/* The driver may give a block to a large allocation while the frees of its small ones have not
 * returned yet. */
void block_has_own(struct shard *s, uint64_t address) {
    struct entry *block = shard_find(s, block_of(address) + 1);
    if (block != NULL) {
        block->flags |= HAS_OWN;
    }
}

static struct owed begin_free(struct entry *block, uint32_t what) {
    struct owed charge = {.device = block_charged_to(block)};
    block->amount -= what;
    block->freeing++;
    if (block->amount > 0) {
        return charge;
    }
    if (block->flags & OWED) {
        charge.bytes = BLOCK_BYTES;
        return charge;
    }
    block->flags |= OWED;
    put_device(block, OWED_SHIFT, charge.device);
    return charge;
}

struct owed small_freeing(struct entry *block) {
    return begin_free(block, SMALL);
}

static struct owed end_free(struct shard *s, struct entry *block) {
    struct owed owed = {.device = block->flags >> OWED_SHIFT & BLOCK_DEVICE_MASK};
    if (--block->freeing == 0) {
        owed.bytes = block->flags & OWED ? BLOCK_BYTES : 0;
        block->flags = (uint16_t)(block->flags & ~OWED);
        if (block->amount == 0) {
            shard_erase(s, block);
        }
    }
    return owed;
}

uint64_t owed_to(struct owed owed, unsigned device) {
    if (owed.device == device) {
        return owed.bytes;
    }
    reservation_release_account(owed.device, owed.bytes);
    return 0;
}

uint64_t block_freed(uint64_t block, unsigned device) {
    struct shard *s = occupancy_shard(block);
    struct owed owed = {.bytes = 0};
    lock_take(&s->lock);
    struct entry *entry = shard_find(s, block + 1);
    if (entry != NULL) {
        owed = end_free(s, entry);
    }
    lock_give(&s->lock);
    return owed_to(owed, device);
}

/* The last small allocation of a block has gone, or another free is under way there. */
static __attribute__((noinline)) uint64_t last_gone(struct shard *s, struct entry *block) {
    unsigned device = block->device;
    struct owed alone = begin_free(block, SMALL);
    struct owed last = end_free(s, block);
    lock_give(&s->lock);
    return owed_to(alone, device) + owed_to(last, device);
}

uint64_t small_gone(uint64_t address, unsigned *device) {
    struct shard *s = occupancy_shard(address);
    lock_take(&s->lock);
    struct entry *block = shard_find(s, block_of(address) + 1);
    uint32_t small = block != NULL ? block->amount & SMALL_MASK : 0;
    if (small != 0) {
        *device = block->device;
        if (small == SMALL || block->freeing != 0) {
            return last_gone(s, block);
        }
        block->amount -= SMALL;
    }
    lock_give(&s->lock);
    return 0;
}

static bool edge_enter(uint64_t block, unsigned device, uint64_t *added) {
    struct shard *s = occupancy_shard(block);
    bool had;
    lock_take(&s->lock);
    struct entry *entry = shard_make(s, block + 1, &had);
    if (entry != NULL) {
        *added += count(entry, EDGE, device);
    }
    lock_give(&s->lock);
    return entry != NULL;
}

bool edges_enter(const struct span *span, unsigned device, uint64_t *added) {
    struct span entered = *span;
    entered.edge_count = 0;
    while (entered.edge_count < span->edge_count &&
           edge_enter(span->edges[entered.edge_count], device, added)) {
        entered.edge_count++;
    }
    if (entered.edge_count < span->edge_count) {
        edges_drop(&entered, device);
        return false;
    }
    return true;
}

uint64_t edges_freeing(const struct span *span, unsigned device) {
    uint64_t alone = 0;
    for (unsigned i = 0; i < span->edge_count; i++) {
        struct shard *s = occupancy_shard(span->edges[i]);
        struct owed owed = {.bytes = 0};
        lock_take(&s->lock);
        struct entry *entry = shard_find(s, span->edges[i] + 1);
        if (entry != NULL) {
            owed = begin_free(entry, EDGE);
        }
        lock_give(&s->lock);
        alone += owed_to(owed, device);
    }
    return alone;
}

uint64_t edges_freed(const struct span *span, unsigned device) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < span->edge_count; i++) {
        bytes += block_freed(span->edges[i], device);
    }
    return bytes;
}

uint64_t edges_drop(const struct span *span, unsigned device) {
    uint64_t alone = edges_freeing(span, device);
    return alone + edges_freed(span, device);
}
