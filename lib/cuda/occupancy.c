#include "cuda/occupancy.h"

#define OWED 1u /* flags of a block's record */

table occupancy;

bool small_enter(uint64_t block, const record *note, uint64_t *added) {
    struct shard *s = occupancy_shard(block);
    bool had, done = false;
    lock_take(&s->lock);
    record *place = shard_claim(s, block + 1, &had);
    if (place != NULL) {
        if ((place->amount & SMALL_MASK) == 0) {
            place->owner = note->owner;
            place->device = note->device;
        }
        if (place->owner == note->owner && place->device == note->device) {
            *added = place->amount == 0 ? BLOCK_BYTES : 0;
            place->amount += SMALL;
            done = true;
        }
    }
    lock_give(&s->lock);
    return done;
}

record *small_find(struct shard *s, uint64_t address) {
    record *block = shard_find(s, block_of(address) + 1);
    return block != NULL && (block->amount & SMALL_MASK) != 0 ? block : NULL;
}

static uint64_t leave(record *block, uint32_t count) {
    block->amount -= count;
    block->leaving++;
    if (block->amount > 0) {
        return 0;
    }
    if (block->flags & OWED) {
        return BLOCK_BYTES;
    }
    block->flags |= OWED;
    return 0;
}

uint64_t small_leave(record *block) {
    return leave(block, SMALL);
}

uint64_t block_left(uint64_t block) {
    struct shard *s = occupancy_shard(block);
    uint64_t bytes = 0;
    lock_take(&s->lock);
    record *place = shard_find(s, block + 1);
    if (place != NULL && --place->leaving == 0) {
        bytes = place->flags & OWED ? BLOCK_BYTES : 0;
        place->flags &= ~OWED & 15u;
        if (place->amount == 0) {
            shard_erase(s, place);
        }
    }
    lock_give(&s->lock);
    return bytes;
}

static bool edge_enter(uint64_t block, uint64_t *added) {
    struct shard *s = occupancy_shard(block);
    bool had;
    lock_take(&s->lock);
    record *place = shard_claim(s, block + 1, &had);
    if (place != NULL) {
        *added += place->amount == 0 ? BLOCK_BYTES : 0;
        place->amount += EDGE;
    }
    lock_give(&s->lock);
    return place != NULL;
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

uint64_t edges_leave(const struct span *span) {
    uint64_t alone = 0;
    for (unsigned i = 0; i < span->edge_count; i++) {
        struct shard *s = occupancy_shard(span->edges[i]);
        lock_take(&s->lock);
        record *place = shard_find(s, span->edges[i] + 1);
        alone += place != NULL ? leave(place, EDGE) : 0;
        lock_give(&s->lock);
    }
    return alone;
}

uint64_t edges_left(const struct span *span) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < span->edge_count; i++) {
        bytes += block_left(span->edges[i]);
    }
    return bytes;
}

uint64_t edges_drop(const struct span *span) {
    uint64_t alone = edges_leave(span);
    return alone + edges_left(span);
}
