#include "cuda/linear.h"

#include "common/share.h"
#include "cuda/blocks.h"
#include "cuda/ipc.h"
#include "cuda/limbo.h"
#include "cuda/tenant.h"

/* Two kinds of records.
 *
 * A block's, under its address + 1, counts the allocations that lie in it partly or wholly. Those that lie
 * wholly in one block and belong to the block's context are counted and nothing else: what a free
 * needs to know of them is the block's. So a small allocation costs lookups among few records,
 * however many there are.
 *
 * All others (larger ones, exported ones, small ones of another context) have a record of their own
 * under their address, with their size as amount, and count in the blocks that they cover partly.
 *
 * A block's charge. The first allocation in a block brings the charge. A free takes its allocation out
 * before the driver is called and is counted as leaving until the driver has answered; as long as one
 * is leaving the driver may hold the block. So the charge of a block that only leaving frees are in is
 * OWED: it goes with the last of them. An allocation that comes meanwhile brings a charge anew. */
static table memory;

#define EXPORTED 1u /* flags of an allocation: its whole blocks are charged to the share */
#define OWED 1u     /* flags of a block */

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

/* Counts a small allocation in its block if it can do without a record; *added is the bytes to charge
 * for the block. */
static bool enter_small(uint64_t block, const record *note, uint64_t *added) {
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
            *added = place->amount == 0 ? BLOCK_BYTES : 0;
            place->amount += SMALL;
            done = true;
        }
    }
    lock_give(&s->lock);
    return done;
}

/* Counts an edge of an allocation in a block. */
static bool enter_edge(uint64_t block, uint64_t *added) {
    struct shard *s = shard_of(block);
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

/* Takes a count out of a block and puts it among the leaving. Returns the bytes that go with this one's
 * leaving alone: the block's charge where another is owed for it already. *owed is set if the charge
 * became owed. */
static uint64_t begin_leaving(record *place, uint32_t count, bool *owed) {
    place->amount -= count;
    place->leaving++;
    if (place->amount > 0) {
        return 0;
    }
    if (place->flags & OWED) {
        return BLOCK_BYTES;
    }
    place->flags |= OWED;
    *owed = true;
    return 0;
}

/* The driver has answered. Returns the bytes owed for the block if this was the last that was leaving. */
static uint64_t end_leaving(struct shard *s, uint64_t block) {
    record *place = shard_find(s, block + 1);
    uint64_t bytes = 0;
    if (place == NULL || --place->leaving > 0) {
        return 0;
    }
    if (place->flags & OWED) {
        place->flags &= ~OWED & 15u;
        bytes = BLOCK_BYTES;
    }
    if (place->amount == 0) {
        shard_erase(s, place);
    }
    return bytes;
}

static uint64_t end_leaving_block(uint64_t block) {
    struct shard *s = shard_of(block);
    lock_take(&s->lock);
    uint64_t bytes = end_leaving(s, block);
    lock_give(&s->lock);
    return bytes;
}

/* Takes an allocation's edges out. Returns what to retire: all that becomes owed, or goes alone. */
static uint64_t leave_edges(const struct span *span, unsigned count, uint64_t *alone) {
    uint64_t retired = 0;
    for (unsigned i = 0; i < count; i++) {
        struct shard *s = shard_of(span->edges[i]);
        lock_take(&s->lock);
        record *place = shard_find(s, span->edges[i] + 1);
        bool owed = false;
        uint64_t own = place != NULL ? begin_leaving(place, EDGE, &owed) : 0;
        lock_give(&s->lock);
        *alone += own;
        retired += own + (owed ? BLOCK_BYTES : 0);
    }
    return retired;
}

static uint64_t edges_left(const struct span *span, unsigned count) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        bytes += end_leaving_block(span->edges[i]);
    }
    return bytes;
}

/* Takes edges out of which the driver knows nothing any more; returns the bytes to give back. */
static uint64_t drop_edges(const struct span *span, unsigned count) {
    uint64_t alone = 0;
    leave_edges(span, count, &alone);
    return alone + edges_left(span, count);
}

/* Enters an allocation with a record of its own; *added is the bytes to charge. False, with nothing
 * entered, if there is no memory. */
static bool enter_recorded(uint64_t address, record note, uint64_t *added) {
    struct span span = span_of(address, record_bytes(note));
    struct shard *s = shard_of(address);
    unsigned edges = 0;
    bool had;
    *added = span.whole;
    while (edges < span.edge_count && enter_edge(span.edges[edges], added)) {
        edges++;
    }
    if (edges < span.edge_count) {
        drop_edges(&span, edges);
        return false;
    }
    lock_take(&s->lock);
    record *place = shard_claim(s, address, &had);
    record old = had ? *place : (record){0};
    if (place != NULL) {
        *place = note;
    }
    lock_give(&s->lock);
    if (place == NULL) {
        drop_edges(&span, edges);
        return false;
    }
    if (had) {
        /* The driver gave an address that we still have: what was there ended without our seeing it,
         * in a stream's time or by the end of a context that we were not told of. */
        struct span gone = span_of(address, record_bytes(old));
        limbo_reused(address);
        claim_release(old.device, gone.whole + drop_edges(&gone, gone.edge_count));
    }
    return true;
}

bool linear_keep(struct claim *claim, uint64_t address, uint64_t bytes) {
    struct span span = span_of(address, bytes);
    uint64_t added = 0;
    bool done = false;
    if (bytes <= GRAINS_MAX_BYTES) {
        record note = record_of_bytes(bytes, claim->place.owner, claim->place.device);
        done = (is_small(&span) && enter_small(span.edges[0], &note, &added)) ||
               enter_recorded(address, note, &added);
    }
    claim_settle(claim, done ? added : 0);
    return done;
}

/* Takes a small allocation out, or the record of another. */
static bool take(struct leaving *leaving, uint64_t *retired) {
    uint64_t block = block_of(leaving->address);
    struct shard *s = shard_of(block);
    bool owed = false, found = true;
    lock_take(&s->lock);
    record *own = shard_find(s, leaving->address);
    record *place = own == NULL ? shard_find(s, block + 1) : NULL;
    if (own != NULL) {
        leaving->note = *own;
        shard_erase(s, own);
    } else if (place != NULL && (place->amount & SMALL_MASK) != 0) {
        leaving->note = record_make(0, place->owner, place->device);
        leaving->bytes = begin_leaving(place, SMALL, &owed);
    } else {
        found = false;
    }
    lock_give(&s->lock);
    *retired = leaving->bytes + (owed ? BLOCK_BYTES : 0);
    return found;
}

bool linear_take(uint64_t address, struct leaving *leaving) {
    uint64_t retired;
    *leaving = (struct leaving){.address = address};
    if (address == 0 || address % GRAIN_BYTES != 0 || !take(leaving, &retired)) {
        return false;
    }
    if (leaving->note.amount > 0) {
        struct span span = span_of(address, record_bytes(leaving->note));
        retired = leave_edges(&span, span.edge_count, &leaving->bytes);
        uint64_t whole = leaving->note.flags & EXPORTED ? 0 : span.whole;
        leaving->bytes += whole;
        retired += whole;
    }
    if (retired > 0) {
        dv_retire(tenant_share(), leaving->note.device, retired);
    }
    return true;
}

/* Ends the leaving; returns the bytes, retired by now, that go with it. */
static uint64_t leave(const struct leaving *leaving) {
    if (leaving->note.amount == 0) {
        return leaving->bytes + end_leaving_block(block_of(leaving->address));
    }
    struct span span = span_of(leaving->address, record_bytes(leaving->note));
    return leaving->bytes + edges_left(&span, span.edge_count);
}

static void forget_export(const struct leaving *leaving) {
    if (leaving->note.flags & EXPORTED) {
        ipc_freed(leaving->address);
    }
}

void linear_freed(const struct leaving *leaving) {
    uint64_t bytes = leave(leaving);
    forget_export(leaving);
    if (bytes > 0) {
        dv_settle(tenant_share(), leaving->note.device, bytes, 0);
    }
}

void linear_put_back(const struct leaving *leaving) {
    record note = leaving->note;
    uint64_t added = 0;
    bool small = note.amount == 0;
    bool done = small && enter_small(block_of(leaving->address), &note, &added);
    if (!done) {
        /* A small one whose block is another context's by now needs a record; one grain will do.
         * Without memory for it, what is retired stays charged, as the driver holds it. */
        note.amount += small;
        done = enter_recorded(leaving->address, note, &added);
    }
    if (done && note.flags & EXPORTED) {
        added -= span_of(leaving->address, record_bytes(note)).whole;
    }
    uint64_t bytes = leave(leaving);
    if (bytes > 0 || added > 0) {
        dv_settle(tenant_share(), note.device, bytes, done ? added : bytes);
    }
}

bool linear_find(uint64_t address, record *note) {
    struct shard *s = shard_of(address);
    lock_take(&s->lock);
    const record *place = shard_find(s, address);
    if (place == NULL) {
        place = shard_find(s, block_of(address) + 1);
        place = place != NULL && (place->amount & SMALL_MASK) != 0 ? place : NULL;
    }
    if (place != NULL) {
        *note = *place;
    }
    lock_give(&s->lock);
    return place != NULL && address % GRAIN_BYTES == 0;
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
        block->amount -= SMALL; /* the record's edge keeps the block */
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
    return place->amount == 0 && place->leaving == 0;
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
