#include "cuda/memory/linear.h"

#include "cuda/attach.h"
#include "cuda/fork.h"
#include "cuda/memory/occupancy.h"
#include "share/share.h"

/* Allocations that are more than a count in their block have a record here, in the table of blocks,
 * under their address: amount is the size. */
#define EXPORTED 1u /* in its flags: its whole blocks are charged to the share */

/* Records under addresses at which no block begins: seldom any, as the driver begins large
 * allocations with a block. */
static uint32_t within_blocks;

static void count_within(uint64_t address, uint32_t by) {
    if (address % BLOCK_BYTES != 0) {
        __atomic_add_fetch(&within_blocks, by, __ATOMIC_RELEASE);
    }
}

/* Enters an allocation with a record of its own; *added is the bytes to charge. False, with nothing
 * entered, if there is no memory. */
static bool enter_recorded(uint64_t address, record note, uint64_t *added) {
    struct span span = span_of(address, record_bytes(note));
    struct shard *s = occupancy_shard(address);
    bool had;
    *added = span.whole;
    if (!edges_enter(&span, added)) {
        return false;
    }
    lock_take(&s->lock);
    record *place = shard_claim(s, address, &had);
    record old = had ? *place : (record){0};
    if (place != NULL) {
        *place = note;
        block_has_own(s, address);
    }
    lock_give(&s->lock);
    if (place == NULL) {
        edges_drop(&span);
        return false;
    }
    count_within(address, had ? 0 : 1);
    if (had) {
        /* The driver gave an address that we still have: what was there ended without our seeing
         * it, in a stream's time or by the end of a context that we were not told of. */
        struct span gone = span_of(address, record_bytes(old));
        TELL(linear_reused, (address));
        claim_release(old.device, gone.whole + edges_drop(&gone));
    }
    return true;
}

static bool is_small(const struct span *span) {
    return span->whole == 0 && span->edge_count == 1;
}

bool linear_keep(struct claim *claim, uint64_t address, uint64_t bytes) {
    struct span span = span_of(address, bytes);
    uint64_t added = 0;
    bool done = false;
    if (bytes <= GRAINS_MAX_BYTES) {
        record note = record_of_bytes(bytes, claim->place.owner, claim->place.device);
        done = (is_small(&span) && small_enter(span.edges[0], &note, &added)) ||
               enter_recorded(address, note, &added);
    }
    claim_settle(claim, done ? added : 0);
    return done;
}

/* Takes a small allocation out, or the record of another. */
static bool take(struct leaving *leaving) {
    struct shard *s = occupancy_shard(leaving->address);
    bool own;
    lock_take(&s->lock);
    record *found = occupant_find(s, leaving->address, &own);
    if (found != NULL && own) {
        leaving->note = *found;
        shard_erase(s, found);
        count_within(leaving->address, UINT32_MAX);
    } else if (found != NULL) {
        leaving->note = record_make(0, found->owner, found->device);
        leaving->alone = small_leave(found);
    }
    lock_give(&s->lock);
    return found != NULL;
}

bool linear_take(uint64_t address, struct leaving *leaving) {
    *leaving = (struct leaving){.address = address};
    if (address == 0 || address % GRAIN_BYTES != 0 || !take(leaving)) {
        return false;
    }
    if (leaving->note.amount > 0) {
        struct span span = span_of(address, record_bytes(leaving->note));
        leaving->alone = edges_leave(&span);
        leaving->retired = leaving->note.flags & EXPORTED ? 0 : span.whole;
    }
    if (leaving->retired > 0) {
        dv_retire(tenant_share(), leaving->note.device, leaving->retired);
    }
    return true;
}

/* Ends the leaving; returns the charged bytes that go with it. */
static uint64_t leave(const struct leaving *leaving) {
    if (leaving->note.amount == 0) {
        return leaving->alone + block_left(block_of(leaving->address));
    }
    struct span span = span_of(leaving->address, record_bytes(leaving->note));
    return leaving->alone + edges_left(&span);
}

bool linear_is_counted(uint64_t address) {
    return address % BLOCK_BYTES != 0 && __atomic_load_n(&within_blocks, __ATOMIC_ACQUIRE) == 0;
}

void linear_counted_freed(uint64_t address) {
    unsigned device = 0;
    uint64_t bytes = small_gone(address, &device);
    claim_release(device, bytes);
}

void linear_freed(const struct leaving *leaving) {
    claim_release(leaving->note.device, leave(leaving));
    if (leaving->retired > 0) {
        dv_settle(tenant_share(), leaving->note.device, leaving->retired, 0);
    }
    if (leaving->note.flags & EXPORTED) {
        TELL(export_freed, (leaving->address));
    }
}

void linear_put_back(const struct leaving *leaving) {
    record note = leaving->note;
    uint64_t added = 0;
    bool small = note.amount == 0;
    bool done = small && small_enter(block_of(leaving->address), &note, &added);
    if (!done) {
        /* A small one whose block is another context's by now needs a record; one grain will do. */
        note.amount += small;
        done = enter_recorded(leaving->address, note, &added);
    }
    if (!done) { /* no memory for the note: all stays charged, as the driver holds it */
        leave(leaving);
        dv_settle(tenant_share(), note.device, leaving->retired, leaving->retired);
        return;
    }
    if (note.flags & EXPORTED) {
        added -= span_of(leaving->address, record_bytes(note)).whole;
    }
    dv_settle(tenant_share(), note.device, leaving->retired, added);
    claim_release(note.device, leave(leaving));
}

bool linear_find(uint64_t address, record *note) {
    struct shard *s = occupancy_shard(address);
    bool own;
    lock_take(&s->lock);
    const record *place = occupant_find(s, address, &own);
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
    struct shard *s = occupancy_shard(address);
    lock_take(&s->lock);
    record *block = shard_find(s, block_of(address) + 1);
    if (block != NULL && (block->amount & SMALL_MASK) != 0) {
        block->amount -= SMALL; /* the record's edge keeps the block */
    }
    lock_give(&s->lock);
    return true;
}

bool linear_mark_exported(uint64_t address, uint64_t bytes, record *note) {
    struct shard *s = occupancy_shard(address);
    bool fresh = false, own;
    lock_take(&s->lock);
    record *found = occupant_find(s, address, &own);
    if (found != NULL) {
        *note = *found;
    }
    if (found != NULL && own) {
        fresh = (found->flags & EXPORTED) == 0;
        found->flags |= EXPORTED;
    }
    lock_give(&s->lock);
    if (found == NULL || own || !record_small(address, bytes, note)) {
        return fresh;
    }
    *note = record_of_bytes(bytes, note->owner, note->device);
    return true;
}

void linear_unmark_exported(uint64_t address) {
    struct shard *s = occupancy_shard(address);
    lock_take(&s->lock);
    record *own = shard_find(s, address);
    if (own != NULL) {
        own->flags = 0;
    }
    lock_give(&s->lock);
}

/* What a context leaves behind: small allocations are taken out at once, those with a record a
 * batch at a time, because a visit holds one shard's lock and they may be in several. */
struct legacy {
    uint32_t owner;
    unsigned size;
    uint64_t addresses[256];
    uint64_t bytes[DV_PAGE_DEVICES];
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
        table_sweep(&occupancy, leave_with_context, &legacy);
        for (unsigned i = 0; i < legacy.size; i++) {
            struct leaving leaving;
            if (linear_take(legacy.addresses[i], &leaving)) {
                linear_freed(&leaving);
            }
        }
    } while (legacy.size == 256);
    for (unsigned device = 0; device < DV_PAGE_DEVICES; device++) {
        claim_release(device, legacy.bytes[device]);
    }
}

static void linear_forked(void) {
    within_blocks = 0;
    table_forget(&occupancy);
}
ON(forked, linear_forked);
