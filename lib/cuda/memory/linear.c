#include "cuda/memory/linear.h"

#include "cuda/attach.h"
#include "cuda/fork.h"
#include "cuda/memory/occupancy.h"
#include "share/share.h"

/* An allocation that is not only counted in its block has an entry under its address, in the table
 * of blocks: amount is its size. */
#define EXPORTED 1u /* flag: the share is charged for the blocks that it covers alone */

/* Records under addresses at which no block begins: seldom any, as the driver begins large
 * allocations with a block. */
uint32_t linear_within;

static void count_within(uint64_t address, uint32_t by) {
    if (address % BLOCK_BYTES != 0) {
        __atomic_add_fetch(&linear_within, by, __ATOMIC_RELEASE);
    }
}

/* Enters an allocation with an entry of its own; *added is the bytes to charge. False, with nothing
 * entered, if there is no memory. */
static bool enter_with_entry(uint64_t address, struct entry note, uint64_t *added) {
    struct span span = span_of(address, entry_bytes(note));
    struct shard *s = occupancy_shard(address);
    bool had;
    *added = span.whole;
    if (!edges_enter(&span, note.device, added)) {
        return false;
    }
    lock_take(&s->lock);
    struct entry *entry = shard_make(s, address, &had);
    struct entry old = had ? *entry : (struct entry){0};
    if (entry != NULL) {
        *entry = note;
        block_has_own(s, address);
    }
    lock_give(&s->lock);
    if (entry == NULL) {
        edges_drop(&span, note.device);
        return false;
    }
    count_within(address, had ? 0 : 1);
    if (had) {
        /* The driver gave an address that is noted as in use. So the old allocation ended unseen: a
         * stream got to its free, or its context ended without a call to us. */
        struct span gone = span_of(address, entry_bytes(old));
        TELL(linear_reused, (address));
        reservation_release_account(old.device, gone.whole + edges_drop(&gone, old.device));
    }
    return true;
}

static bool is_small(const struct span *span) {
    return span->whole == 0 && span->edge_count == 1;
}

bool linear_keep(struct reservation *reservation, uint64_t address, uint64_t bytes) {
    struct span span = span_of(address, bytes);
    uint64_t added = 0;
    bool done = false;
    if (bytes <= GRAINS_MAX_BYTES) {
        struct entry note = entry_of_bytes(bytes, reservation->home.owner, reservation->account);
        done = (is_small(&span) && small_enter(span.edges[0], &note, &added)) ||
               enter_with_entry(address, note, &added);
    }
    reservation_settle(reservation, done ? added : 0);
    return done;
}

/* Takes out a small allocation, or the entry of a larger one. */
static bool take(struct freeing *freeing) {
    struct shard *s = occupancy_shard(freeing->address);
    struct owed alone = {.bytes = 0};
    bool own;
    lock_take(&s->lock);
    struct entry *found = occupant_find(s, freeing->address, &own);
    if (found != NULL && own) {
        freeing->note = *found;
        shard_erase(s, found);
        count_within(freeing->address, UINT32_MAX);
    } else if (found != NULL) {
        freeing->note = entry_make(0, found->owner, found->device);
        alone = small_freeing(found);
    }
    lock_give(&s->lock);
    freeing->alone = owed_to(alone, freeing->note.device);
    return found != NULL;
}

bool linear_take(uint64_t address, struct freeing *freeing) {
    *freeing = (struct freeing){.address = address};
    if (address == 0 || address % GRAIN_BYTES != 0 || !take(freeing)) {
        return false;
    }
    if (freeing->note.amount > 0) {
        struct span span = span_of(address, entry_bytes(freeing->note));
        freeing->alone = edges_freeing(&span, freeing->note.device);
        freeing->retired = freeing->note.flags & EXPORTED ? 0 : span.whole;
    }
    if (freeing->retired > 0) {
        dv_retire(attached_share(), freeing->note.device, freeing->retired);
    }
    return true;
}

/* Ends the freeing; returns the charged bytes that go with it. */
static uint64_t end_free(const struct freeing *freeing) {
    if (freeing->note.amount == 0) {
        return freeing->alone + block_freed(block_of(freeing->address), freeing->note.device);
    }
    struct span span = span_of(freeing->address, entry_bytes(freeing->note));
    return freeing->alone + edges_freed(&span, freeing->note.device);
}

void linear_counted_freed(uint64_t address) {
    unsigned device = 0;
    uint64_t bytes = small_gone(address, &device);
    if (bytes != 0) {
        reservation_release_account(device, bytes);
    }
}

void linear_freed(const struct freeing *freeing) {
    reservation_release_account(freeing->note.device, end_free(freeing));
    if (freeing->retired > 0) {
        dv_settle(attached_share(), freeing->note.device, freeing->retired, 0);
    }
    if (freeing->note.flags & EXPORTED) {
        TELL(export_freed, (freeing->address));
    }
}

void linear_put_back(const struct freeing *freeing) {
    struct entry note = freeing->note;
    uint64_t added = 0;
    bool small = note.amount == 0;
    bool done = small && small_enter(block_of(freeing->address), &note, &added);
    if (!done) {
        /* By now the block may belong to another context. Then a small allocation needs an entry,
         * of one grain. */
        note.amount += small;
        done = enter_with_entry(freeing->address, note, &added);
    }
    if (!done) { /* no memory for the note: all stays charged, because the driver still holds it */
        end_free(freeing);
        dv_settle(attached_share(), note.device, freeing->retired, freeing->retired);
        return;
    }
    if (note.flags & EXPORTED) {
        added -= span_of(freeing->address, entry_bytes(note)).whole;
    }
    dv_settle(attached_share(), note.device, freeing->retired, added);
    reservation_release_account(note.device, end_free(freeing));
}

bool linear_find(uint64_t address, struct entry *note) {
    struct shard *s = occupancy_shard(address);
    bool own;
    lock_take(&s->lock);
    const struct entry *entry = occupant_find(s, address, &own);
    if (entry != NULL) {
        *note = *entry;
    }
    lock_give(&s->lock);
    return entry != NULL && address % GRAIN_BYTES == 0;
}

/* Gives an entry to a small allocation that is only counted so far. */
static bool give_entry(uint64_t address, uint64_t bytes, const struct entry *small) {
    struct entry note = entry_of_bytes(bytes, small->owner, small->device);
    uint64_t added;
    note.flags = EXPORTED;
    if (!enter_with_entry(address, note, &added)) {
        return false;
    }
    struct shard *s = occupancy_shard(address);
    lock_take(&s->lock);
    struct entry *block = shard_find(s, block_of(address) + 1);
    if (block != NULL && (block->amount & SMALL_MASK) != 0) {
        block->amount -= SMALL; /* the edge of the new entry keeps the block charged */
    }
    lock_give(&s->lock);
    return true;
}

bool linear_mark_exported(uint64_t address, uint64_t bytes, struct entry *note) {
    struct shard *s = occupancy_shard(address);
    bool fresh = false, own;
    lock_take(&s->lock);
    struct entry *found = occupant_find(s, address, &own);
    if (found != NULL) {
        *note = *found;
    }
    if (found != NULL && own) {
        fresh = (found->flags & EXPORTED) == 0;
        found->flags |= EXPORTED;
    }
    lock_give(&s->lock);
    if (found == NULL || own || !give_entry(address, bytes, note)) {
        return fresh;
    }
    *note = entry_of_bytes(bytes, note->owner, note->device);
    return true;
}

void linear_unmark_exported(uint64_t address) {
    struct shard *s = occupancy_shard(address);
    lock_take(&s->lock);
    struct entry *own = shard_find(s, address);
    if (own != NULL) {
        own->flags = 0;
    }
    lock_give(&s->lock);
}

/* What a context leaves behind. A sweep takes small allocations out at once. It only collects the
 * addresses of those with an entry, because it holds the lock of one shard and they may touch
 * others. */
struct remains {
    uint32_t owner;
    unsigned size;
    uint64_t addresses[256];
    uint64_t bytes[DV_PAGE_DEVICES];
};

static bool ends_with_context(uint64_t key, struct entry *entry, void *arg) {
    struct remains *remains = arg;
    if (key % 2 == 0) {
        if (entry->owner == remains->owner && remains->size < 256) {
            remains->addresses[remains->size++] = key;
        }
        return false;
    }
    if (entry->owner != remains->owner || (entry->amount & SMALL_MASK) == 0) {
        return false;
    }
    entry->amount &= ~SMALL_MASK;
    remains->bytes[block_charged_to(entry)] += entry->amount == 0 ? BLOCK_BYTES : 0;
    return entry->amount == 0 && entry->freeing == 0;
}

void linear_context_ended(uint32_t owner) {
    struct remains remains = {.owner = owner};
    do {
        remains.size = 0;
        table_sweep(&occupancy, ends_with_context, &remains);
        for (unsigned i = 0; i < remains.size; i++) {
            struct freeing freeing;
            if (linear_take(remains.addresses[i], &freeing)) {
                linear_freed(&freeing);
            }
        }
    } while (remains.size == 256);
    for (unsigned device = 0; device < DV_PAGE_DEVICES; device++) {
        reservation_release_account(device, remains.bytes[device]);
    }
}

static void linear_forked(void) {
    linear_within = 0;
    table_forget(&occupancy);
}
ON(forked, linear_forked);
