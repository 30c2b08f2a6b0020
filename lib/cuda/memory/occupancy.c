#include "cuda/memory/occupancy.h"

/* Flags of a block's entry. */
#define OWED 1u
#define HAS_OWN 2u /* an address in the block has an entry too, as it has if there are edges */

table occupancy;

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
            *added = entry->amount == 0 ? BLOCK_BYTES : 0;
            entry->amount += SMALL;
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

static uint64_t begin_free(struct entry *block, uint32_t count) {
    block->amount -= count;
    block->freeing++;
    if (block->amount > 0) {
        return 0;
    }
    if (block->flags & OWED) {
        return BLOCK_BYTES;
    }
    block->flags |= OWED;
    return 0;
}

uint64_t small_freeing(struct entry *block) {
    return begin_free(block, SMALL);
}

static uint64_t end_free(struct shard *s, struct entry *block) {
    uint64_t bytes = 0;
    if (--block->freeing == 0) {
        bytes = block->flags & OWED ? BLOCK_BYTES : 0;
        block->flags = (uint16_t)(block->flags & ~OWED);
        if (block->amount == 0) {
            shard_erase(s, block);
        }
    }
    return bytes;
}

uint64_t block_freed(uint64_t block) {
    struct shard *s = occupancy_shard(block);
    lock_take(&s->lock);
    struct entry *entry = shard_find(s, block + 1);
    uint64_t bytes = entry != NULL ? end_free(s, entry) : 0;
    lock_give(&s->lock);
    return bytes;
}

uint64_t small_gone(uint64_t address, unsigned *device) {
    struct shard *s = occupancy_shard(address);
    uint64_t bytes = 0;
    lock_take(&s->lock);
    struct entry *block = shard_find(s, block_of(address) + 1);
    if (block != NULL && (block->amount & SMALL_MASK) != 0) {
        *device = block->device;
        bytes = begin_free(block, SMALL);
        bytes += end_free(s, block);
    }
    lock_give(&s->lock);
    return bytes;
}

static bool edge_enter(uint64_t block, uint64_t *added) {
    struct shard *s = occupancy_shard(block);
    bool had;
    lock_take(&s->lock);
    struct entry *entry = shard_make(s, block + 1, &had);
    if (entry != NULL) {
        *added += entry->amount == 0 ? BLOCK_BYTES : 0;
        entry->amount += EDGE;
    }
    lock_give(&s->lock);
    return entry != NULL;
}

bool edges_enter(const struct span *span, uint64_t *added) {
    struct span entered = *span;
    entered.edge_count = 0;
    while (entered.edge_count < span->edge_count &&
           edge_enter(span->edges[entered.edge_count], added)) {
        entered.edge_count++;
    }
    if (entered.edge_count < span->edge_count) {
        edges_drop(&entered);
        return false;
    }
    return true;
}

uint64_t edges_freeing(const struct span *span) {
    uint64_t alone = 0;
    for (unsigned i = 0; i < span->edge_count; i++) {
        struct shard *s = occupancy_shard(span->edges[i]);
        lock_take(&s->lock);
        struct entry *entry = shard_find(s, span->edges[i] + 1);
        alone += entry != NULL ? begin_free(entry, EDGE) : 0;
        lock_give(&s->lock);
    }
    return alone;
}

uint64_t edges_freed(const struct span *span) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < span->edge_count; i++) {
        bytes += block_freed(span->edges[i]);
    }
    return bytes;
}

uint64_t edges_drop(const struct span *span) {
    uint64_t alone = edges_freeing(span);
    return alone + edges_freed(span);
}
