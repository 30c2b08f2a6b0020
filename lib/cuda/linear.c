#include "cuda/linear.h"

#include "common/share.h"
#include "cuda/blocks.h"
#include "cuda/ipc.h"
#include "cuda/tenant.h"

/* Two kinds of records, a block's and those of the allocations that begin in it, in one shard, so that
 * a small allocation takes one lock. An allocation's key is its address, its amount the size; a
 * block's key is its address + 1, its amount the number of allocations that cover it partly. */
static table memory;

#define EXPORTED 1u /* flags of an allocation: its whole blocks are charged to the share */

static struct shard *shard_of(uint64_t address) {
    return table_shard(&memory, address / BLOCK_BYTES);
}

/* Counts an allocation in or out of a block; true if it is the first in or the last out. */
static bool enter_block(struct shard *s, uint64_t block, bool *first) {
    bool had;
    record *count = shard_claim(s, block + 1, &had);
    if (count != NULL) {
        *first = count->amount++ == 0;
    }
    return count != NULL;
}

static bool leave_block(struct shard *s, uint64_t block) {
    record *count = shard_find(s, block + 1);
    if (count == NULL || --count->amount > 0) {
        return false;
    }
    shard_erase(s, count);
    return true;
}

/* The same for an edge in another block than the one an allocation begins in. */
static bool enter_far_block(uint64_t block, bool *first) {
    struct shard *s = shard_of(block);
    lock_take(&s->lock);
    bool done = enter_block(s, block, first);
    lock_give(&s->lock);
    return done;
}

static bool leave_far_block(uint64_t block) {
    struct shard *s = shard_of(block);
    lock_take(&s->lock);
    bool last = leave_block(s, block);
    lock_give(&s->lock);
    return last;
}

/* Whether the first edge is the block that the address is in, and so in the same shard. */
static bool has_near_edge(uint64_t address, const struct span *span) {
    return span->edge_count > 0 && (address & ~(BLOCK_BYTES - 1)) == span->edges[0];
}

/* Takes what was entered out again. */
static void undo(uint64_t address, const struct span *span, unsigned edges) {
    struct shard *s = shard_of(address);
    lock_take(&s->lock);
    record *mine = shard_find(s, address);
    if (mine != NULL) {
        shard_erase(s, mine);
    }
    lock_give(&s->lock);
    for (unsigned i = 0; i < edges; i++) {
        leave_far_block(span->edges[i]);
    }
}

/* Enters an allocation; *added is the bytes of blocks that it is the first to touch. *old is what the
 * address stood for, if *had. False, with nothing entered, if there is no memory. */
static bool enter(uint64_t address, record note, uint64_t *added, record *old, bool *had) {
    struct span span = span_of(address, record_bytes(note));
    struct shard *s = shard_of(address);
    unsigned edges = 0;
    bool first = false;
    lock_take(&s->lock);
    record *place = shard_claim(s, address, had);
    if (place != NULL) {
        *old = *place;
        *place = note;
        edges = has_near_edge(address, &span) && enter_block(s, span.edges[0], &first);
    }
    lock_give(&s->lock);
    if (place == NULL) {
        return false;
    }
    *added = span.whole + (first ? BLOCK_BYTES : 0);
    for (; edges < span.edge_count; edges++) {
        if (!enter_far_block(span.edges[edges], &first)) {
            undo(address, &span, edges);
            return false;
        }
        *added += first ? BLOCK_BYTES : 0;
    }
    return true;
}

/* Takes an allocation out. *left is the bytes of blocks that nothing touches any more. */
static bool take(uint64_t address, record *note, uint64_t *left) {
    struct shard *s = shard_of(address);
    struct span span = {0};
    unsigned edges = 0;
    lock_take(&s->lock);
    record *place = shard_find(s, address);
    if (place != NULL) {
        *note = *place;
        shard_erase(s, place);
        span = span_of(address, record_bytes(*note));
        *left = span.whole;
        if (has_near_edge(address, &span)) {
            *left += leave_block(s, span.edges[edges++]) ? BLOCK_BYTES : 0;
        }
    }
    lock_give(&s->lock);
    for (; edges < span.edge_count; edges++) {
        *left += leave_far_block(span.edges[edges]) ? BLOCK_BYTES : 0;
    }
    return place != NULL;
}

/* What a block's leaving gives back of an allocation that is exported: its whole blocks are not this
 * process's. */
static uint64_t own_part(uint64_t address, const record *note, uint64_t left) {
    return note->flags & EXPORTED ? left - span_of(address, record_bytes(*note)).whole : left;
}

bool linear_keep(struct claim *claim, uint64_t address, uint64_t bytes) {
    record old, note = record_of_bytes(bytes, claim->place.owner, claim->place.device);
    uint64_t added;
    bool had;
    if (bytes > GRAINS_MAX_BYTES || !enter(address, note, &added, &old, &had)) {
        claim_settle(claim, 0);
        return false;
    }
    claim_settle(claim, added);
    if (had) {
        /* The driver gave an address that we still have: what was there ended without our seeing it,
         * by the end of a context that we were not told of. */
        struct span span = span_of(address, record_bytes(old));
        uint64_t left = span.whole;
        for (unsigned i = 0; i < span.edge_count; i++) {
            left += leave_far_block(span.edges[i]) ? BLOCK_BYTES : 0;
        }
        claim_release(old.device, own_part(address, &old, left));
    }
    return true;
}

bool linear_take(uint64_t address, struct leaving *leaving) {
    uint64_t left;
    if (address == 0 || address % 2 != 0 || !take(address, &leaving->note, &left)) {
        return false;
    }
    leaving->address = address;
    leaving->bytes = own_part(address, &leaving->note, left);
    if (leaving->bytes > 0) {
        dv_retire(tenant_share(), leaving->note.device, leaving->bytes);
    }
    return true;
}

static void forget_export(const struct leaving *leaving) {
    if (leaving->note.flags & EXPORTED) {
        ipc_freed(leaving->address);
    }
}

void linear_freed(const struct leaving *leaving) {
    forget_export(leaving);
    if (leaving->bytes > 0) {
        dv_settle(tenant_share(), leaving->note.device, leaving->bytes, 0);
    }
}

void linear_put_back(const struct leaving *leaving) {
    uint64_t added = 0;
    record old;
    bool had;
    /* Without memory for the note what it touched stays charged, as the driver holds it. */
    if (!enter(leaving->address, leaving->note, &added, &old, &had)) {
        added = leaving->bytes;
    } else {
        added = own_part(leaving->address, &leaving->note, added);
    }
    if (leaving->bytes > 0 || added > 0) {
        dv_settle(tenant_share(), leaving->note.device, leaving->bytes, added);
    }
}

void linear_detach(const struct leaving *leaving) {
    if (leaving->bytes > 0) {
        dv_settle(tenant_share(), leaving->note.device, leaving->bytes, leaving->bytes);
    }
}

void linear_released(const struct leaving *leaving) {
    forget_export(leaving);
    claim_release(leaving->note.device, leaving->bytes);
}

bool linear_mark_exported(uint64_t address, record *note) {
    struct shard *s = shard_of(address);
    bool fresh = false;
    lock_take(&s->lock);
    record *place = address != 0 ? shard_find(s, address) : NULL;
    if (place != NULL) {
        *note = *place;
        fresh = (place->flags & EXPORTED) == 0;
        place->flags |= EXPORTED;
    }
    lock_give(&s->lock);
    return fresh;
}

void linear_unmark_exported(uint64_t address) {
    struct shard *s = shard_of(address);
    lock_take(&s->lock);
    record *place = shard_find(s, address);
    if (place != NULL) {
        place->flags &= ~EXPORTED & 15u;
    }
    lock_give(&s->lock);
}

/* Allocations of one context, a batch at a time: a visit holds a shard's lock and cannot take an
 * allocation out of several. */
struct batch {
    uint32_t owner;
    unsigned size;
    uint64_t addresses[256];
};

static bool collect(uint64_t key, record *note, void *arg) {
    struct batch *batch = arg;
    if (key % 2 == 0 && note->owner == batch->owner && batch->size < 256) {
        batch->addresses[batch->size++] = key;
    }
    return false;
}

void linear_context_ended(uint32_t owner) {
    struct batch batch = {.owner = owner};
    do {
        batch.size = 0;
        table_sweep(&memory, collect, &batch);
        for (unsigned i = 0; i < batch.size; i++) {
            struct leaving leaving;
            if (linear_take(batch.addresses[i], &leaving)) {
                linear_freed(&leaving);
            }
        }
    } while (batch.size == 256);
}

void linear_forked(void) {
    table_forget(&memory);
}
