#include "cuda/linear.h"

#include "common/share.h"
#include "cuda/blocks.h"
#include "cuda/ipc.h"
#include "cuda/tenant.h"

/* Two kinds of records.
 *
 * A block's, under its address + 1, counts the allocations that lie in it partly or wholly. Those that lie
 * wholly in one block and belong to the block's context are counted and nothing else: what a free
 * needs to know of them is the block's. So a small allocation costs one lookup among few records,
 * however many there are.
 *
 * All others (larger ones, exported ones, small ones of another context) have a record of their own
 * under their address, with their size as amount, and count in the blocks that they cover partly. */
static table memory;

#define EXPORTED 1u /* flags of an allocation: its whole blocks are charged to the share */

/* The amount of a block's record: small allocations without a record, and edges of those with one. A
 * block has 8192 grains, so neither passes 16 bits. */
#define SMALL 1u
#define SMALL_MASK 0xffffu
#define EDGE 0x10000u

static uint64_t block_of(uint64_t address) {
    return address & ~(BLOCK_BYTES - 1);
}

/* A block and what begins in it are in one shard. */
static struct shard *shard_of(uint64_t address) {
    return table_shard(&memory, address / BLOCK_BYTES);
}

static bool is_small(const struct span *span) {
    return span->whole == 0 && span->edge_count == 1;
}

/* Counts a small allocation in its block if it can do without a record; *first if the block was not in
 * use. */
static bool enter_small(uint64_t block, const record *note, bool *first) {
    struct shard *s = shard_of(block);
    bool had, done = false;
    lock_take(&s->lock);
    record *place = shard_claim(s, block + 1, &had);
    if (place != NULL) {
        if ((place->amount & SMALL_MASK) == 0) {
            place->owner = note->owner;
            place->device = note->device;
        }
        if (place->owner == note->owner && place->device == note->device) {
            *first = place->amount == 0;
            place->amount += SMALL;
            done = true;
        }
    }
    lock_give(&s->lock);
    return done;
}

/* Counts an edge of an allocation in or out of a block. */
static bool enter_edge(uint64_t block, bool *first) {
    struct shard *s = shard_of(block);
    bool had;
    lock_take(&s->lock);
    record *place = shard_claim(s, block + 1, &had);
    if (place != NULL) {
        *first = place->amount == 0;
        place->amount += EDGE;
    }
    lock_give(&s->lock);
    return place != NULL;
}

/* Takes a count out of a block's record; true if nothing is left in the block. */
static bool leave(struct shard *s, record *place, uint32_t count) {
    place->amount -= count;
    if (place->amount > 0) {
        return false;
    }
    shard_erase(s, place);
    return true;
}

static uint64_t leave_edges(const struct span *span, unsigned count) {
    uint64_t left = 0;
    for (unsigned i = 0; i < count; i++) {
        struct shard *s = shard_of(span->edges[i]);
        lock_take(&s->lock);
        record *place = shard_find(s, span->edges[i] + 1);
        left += place != NULL && leave(s, place, EDGE) ? BLOCK_BYTES : 0;
        lock_give(&s->lock);
    }
    return left;
}

/* Enters an allocation with a record of its own; *added is the bytes of blocks that it is the first to
 * touch. False, with nothing entered, if there is no memory. */
static bool enter_recorded(uint64_t address, record note, uint64_t *added) {
    struct span span = span_of(address, record_bytes(note));
    struct shard *s = shard_of(address);
    unsigned edges = 0;
    bool had, first = false;
    *added = span.whole;
    for (; edges < span.edge_count && enter_edge(span.edges[edges], &first); edges++) {
        *added += first ? BLOCK_BYTES : 0;
    }
    if (edges < span.edge_count) {
        leave_edges(&span, edges);
        return false;
    }
    lock_take(&s->lock);
    record *place = shard_claim(s, address, &had);
    record old = had ? *place : (record){0};
    if (place != NULL) {
        *place = note;
    }
    lock_give(&s->lock);
    if (had) {
        /* The driver gave an address that we still have: what was there ended without our seeing it,
         * by the end of a context that we were not told of. */
        struct span gone = span_of(address, record_bytes(old));
        claim_release(old.device, gone.whole + leave_edges(&gone, gone.edge_count));
    }
    if (place == NULL) {
        leave_edges(&span, span.edge_count);
    }
    return place != NULL;
}

static bool enter(uint64_t address, record note, uint64_t *added) {
    struct span span = span_of(address, record_bytes(note));
    bool first = false;
    if (is_small(&span) && note.flags == 0 && enter_small(span.edges[0], &note, &first)) {
        *added = first ? BLOCK_BYTES : 0;
        return true;
    }
    return enter_recorded(address, note, added);
}

bool linear_keep(struct claim *claim, uint64_t address, uint64_t bytes) {
    uint64_t added = 0;
    bool done = bytes <= GRAINS_MAX_BYTES &&
                enter(address, record_of_bytes(bytes, claim->place.owner, claim->place.device),
                      &added);
    claim_settle(claim, done ? added : 0);
    return done;
}

/* Takes an allocation out. *left is the bytes of blocks that nothing touches any more. */
static bool take(uint64_t address, record *note, uint64_t *left) {
    struct shard *s = shard_of(address);
    bool recorded = false, small = false;
    *left = 0;
    lock_take(&s->lock);
    record *block = shard_find(s, block_of(address) + 1);
    record *own = block == NULL || block->amount > SMALL_MASK ? shard_find(s, address) : NULL;
    if (own != NULL) {
        *note = *own;
        shard_erase(s, own);
        recorded = true;
    } else if (block != NULL && (block->amount & SMALL_MASK) != 0) {
        *note = record_make(0, block->owner, block->device);
        *left = leave(s, block, SMALL) ? BLOCK_BYTES : 0;
        small = true;
    }
    lock_give(&s->lock);
    if (recorded) {
        struct span span = span_of(address, record_bytes(*note));
        uint64_t whole = note->flags & EXPORTED ? 0 : span.whole;
        *left = whole + leave_edges(&span, span.edge_count);
    }
    return recorded || small;
}

bool linear_take(uint64_t address, struct leaving *leaving) {
    if (address == 0 || address % GRAIN_BYTES != 0 ||
        !take(address, &leaving->note, &leaving->bytes)) {
        return false;
    }
    leaving->address = address;
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
    record note = leaving->note;
    uint64_t added = 0;
    bool first = false;
    bool small = note.amount == 0;
    bool done = small && enter_small(block_of(leaving->address), &note, &first);
    if (!done) {
        /* A small one whose block is another context's by now needs a record; one grain will do. */
        note.amount += small;
        done = enter_recorded(leaving->address, note, &added);
    }
    added += first ? BLOCK_BYTES : 0;
    if (done && note.flags & EXPORTED) {
        added -= span_of(leaving->address, record_bytes(note)).whole;
    }
    /* Without memory for the note what it touched stays charged, as the driver holds it. */
    if (leaving->bytes > 0 || added > 0) {
        dv_settle(tenant_share(), note.device, leaving->bytes, done ? added : leaving->bytes);
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

/* Gives a small allocation that is only counted a record of its own. */
static bool record_small(uint64_t address, uint64_t bytes, const record *small) {
    record note = record_of_bytes(bytes, small->owner, small->device);
    uint64_t added;
    note.flags = EXPORTED;
    if (!enter_recorded(address, note, &added)) {
        return false;
    }
    struct shard *s = shard_of(address);
    lock_take(&s->lock);
    record *block = shard_find(s, block_of(address) + 1);
    if (block != NULL && (block->amount & SMALL_MASK) != 0) {
        leave(s, block, SMALL); /* the record's edge keeps the block */
    }
    lock_give(&s->lock);
    return true;
}

bool linear_mark_exported(uint64_t address, uint64_t bytes, record *note) {
    struct shard *s = shard_of(address);
    bool fresh = false, small = false;
    lock_take(&s->lock);
    record *own = shard_find(s, address);
    record *block = shard_find(s, block_of(address) + 1);
    if (own != NULL) {
        fresh = (own->flags & EXPORTED) == 0;
        own->flags |= EXPORTED;
        *note = *own;
    } else if (block != NULL && (block->amount & SMALL_MASK) != 0) {
        *note = *block;
        small = true;
    }
    lock_give(&s->lock);
    if (!small || !record_small(address, bytes, note)) {
        return fresh;
    }
    *note = record_of_bytes(bytes, note->owner, note->device);
    return true;
}

void linear_unmark_exported(uint64_t address) {
    struct shard *s = shard_of(address);
    lock_take(&s->lock);
    record *own = shard_find(s, address);
    if (own != NULL) {
        own->flags &= ~EXPORTED & 15u;
    }
    lock_give(&s->lock);
}

/* What a context leaves behind: small allocations are taken out at once, those with a record a batch at
 * a time, because a visit holds one shard's lock and they may be in several. */
struct legacy {
    uint32_t owner;
    unsigned size;
    uint64_t addresses[256];
    uint64_t bytes[DV_DEVICES_MAX];
};

static bool leave_with_context(uint64_t key, record *place, void *arg) {
    struct legacy *legacy = arg;
    if (key % 2 == 0) {
        if (place->owner == legacy->owner && legacy->size < 256) {
            legacy->addresses[legacy->size++] = key;
        }
        return false;
    }
    if (place->owner != legacy->owner || (place->amount & SMALL_MASK) == 0) {
        return false;
    }
    place->amount &= ~SMALL_MASK;
    legacy->bytes[place->device] += place->amount == 0 ? BLOCK_BYTES : 0;
    return place->amount == 0;
}

void linear_context_ended(uint32_t owner) {
    struct legacy legacy = {.owner = owner};
    do {
        legacy.size = 0;
        table_sweep(&memory, leave_with_context, &legacy);
        for (unsigned i = 0; i < legacy.size; i++) {
            struct leaving leaving;
            if (linear_take(legacy.addresses[i], &leaving)) {
                linear_freed(&leaving);
            }
        }
    } while (legacy.size == 256);
    for (unsigned device = 0; device < DV_DEVICES_MAX; device++) {
        claim_release(device, legacy.bytes[device]);
    }
}

void linear_forked(void) {
    table_forget(&memory);
}
