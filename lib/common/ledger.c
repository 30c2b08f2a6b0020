/* Operations of the calling process on its own record. state.h tells how they survive its death. */
#include "common/state.h"

/* Each failed swap means that a neighbour's succeeded, so this many in a row mean that somebody
 * writes for the sake of writing. About a second. */
#define SWAP_TRIES (1u << 22)
#define RAISE_TRIES 64u

static void store_intent(dv_page_intent *to, const dv_page_intent *from) {
    __atomic_store_n(&to->charged, from->charged, __ATOMIC_RELAXED);
    __atomic_store_n(&to->pending, from->pending, __ATOMIC_RELAXED);
    __atomic_store_n(&to->overhead, from->overhead, __ATOMIC_RELAXED);
    __atomic_store_n(&to->action, from->action, __ATOMIC_RELAXED);
}

dv_page_intent record_balance(const dv_page_record *record) {
    const dv_page_intent *from = &record->intent[load64(&record->done) & 1];
    return (dv_page_intent){
        .charged = __atomic_load_n(&from->charged, __ATOMIC_RELAXED),
        .pending = __atomic_load_n(&from->pending, __ATOMIC_RELAXED),
        .overhead = __atomic_load_n(&from->overhead, __ATOMIC_RELAXED),
        .action = __atomic_load_n(&from->action, __ATOMIC_RELAXED),
    };
}

static uint32_t add_units(uint32_t units, int64_t change) {
    int64_t sum = (int64_t)units + change;
    return sum < 0 ? 0 : sum > (int64_t)UNITS_MAX ? UNITS_MAX : (uint32_t)sum;
}

/* Notes that the operation of this tag has happened, before the tag is overwritten. Not needed for
 * the slot's own tag, whose number then is record.done; only now and then, so that applied does not
 * fall half a wrap behind. */
static bool note_applied(dv_page_gpu *gpu, unsigned slot, uint64_t tag) {
    unsigned writer = tag_slot(tag);
    uint64_t sequence = tag_sequence(tag);
    if (writer == slot && (sequence & UINT32_MAX) != 0) {
        return true;
    }
    if (writer >= DV_PAGE_SLOTS) {
        return false;
    }
    for (unsigned i = 0; i < RAISE_TRIES; i++) {
        uint64_t present = load64(&gpu->applied[writer]);
        if (!sequence_after(sequence, present) ||
            swap64(&gpu->applied[writer], present, sequence)) {
            return true;
        }
    }
    return false;
}

static ledger_result judge(const ledger_change *change, uint64_t amounts) {
    uint64_t need = amounts_used(amounts) + (uint64_t)change->pending;
    if (need > change->room) {
        return LEDGER_FULL;
    }
    need += amounts_pending(amounts) + change->held;
    return need > change->room ? LEDGER_BLOCKED : LEDGER_DONE;
}

ledger_result ledger_commit(dv_page_gpu *gpu, unsigned slot, const ledger_change *change) {
    dv_page_record *record = &gpu->record[slot];
    uint64_t sequence = (load64(&record->done) + 1) & SEQUENCE_MASK;
    store_intent(&record->intent[sequence & 1], &change->after);
    store64(&record->sequence, sequence);
    for (unsigned i = 0; i < SWAP_TRIES; i++) {
        ledger_word old = load_ledger(gpu);
        if (change->room != UINT64_MAX) {
            ledger_result result = judge(change, old.amounts);
            if (result != LEDGER_DONE) {
                return result;
            }
        }
        if (!note_applied(gpu, slot, old.tag)) {
            return LEDGER_BROKEN;
        }
        ledger_word new = {
            .amounts = pack_amounts(add_units(amounts_used(old.amounts), change->used),
                                    add_units(amounts_pending(old.amounts), change->pending)),
            .tag = pack_tag(slot, sequence),
        };
        if (swap_ledger(gpu, old, new)) {
            return LEDGER_DONE;
        }
    }
    return LEDGER_BROKEN;
}

void ledger_complete(dv_page_gpu *gpu, unsigned slot) {
    dv_page_record *record = &gpu->record[slot];
    store64(&record->done, __atomic_load_n(&record->sequence, __ATOMIC_RELAXED));
}

/* swap_ledger is a full barrier, so a waiter that announced itself before it looked at the word is
 * seen here; wait_for_room looks again after a while in any case. */
void ledger_wake(dv_page_gpu *gpu) {
    if (__builtin_expect(__atomic_load_n(&gpu->waiting, __ATOMIC_RELAXED) != 0, 0)) {
        __atomic_store_n(&gpu->waiting, 0, __ATOMIC_SEQ_CST);
        __atomic_fetch_add(&gpu->wake, 1, __ATOMIC_SEQ_CST);
        os_futex_wake(&gpu->wake);
    }
}

static dv_page_gpu *find_gpu(dv_share *share, unsigned device) {
    return device < share->device_count ? &share->gpu[device] : NULL;
}

/* Applies a change that is never refused. */
static void apply(dv_page_gpu *gpu, unsigned slot, dv_page_intent after, int64_t used,
                  int64_t pending) {
    after.action = DV_PAGE_ACTION_NONE;
    ledger_change change = {.after = after, .used = used, .pending = pending, .room = UINT64_MAX};
    if (ledger_commit(gpu, slot, &change) == LEDGER_DONE) {
        ledger_complete(gpu, slot);
    }
}

ledger_result reserve_once(dv_share *share, unsigned device, uint32_t units) {
    dv_page_gpu *gpu = &share->gpu[device];
    unsigned slot = (unsigned)own_slot(share);
    dv_page_record *record = &gpu->record[slot];
    ledger_change change = {.pending = units};
    change.room = dv_share_limit(share, device) / DV_UNIT;
    if (__builtin_expect(load64(&gpu->turn) != 0, 0)) {
        change.held = turn_of_others(share, gpu);
    }
    if (!os_lock(&record->lock, &record->waiters)) {
        return LEDGER_BROKEN;
    }
    change.after = record_balance(record);
    change.after.pending = add_units(change.after.pending, units);
    change.after.action = DV_PAGE_ACTION_NONE;
    ledger_result result = ledger_commit(gpu, slot, &change);
    if (result == LEDGER_DONE) {
        ledger_complete(gpu, slot);
    }
    os_unlock(&record->lock, &record->waiters);
    return result;
}

dv_status dv_reserve(dv_share *share, unsigned device, uint64_t bytes) {
    if (device >= share->device_count) {
        return DV_NO_DEVICE;
    }
    uint64_t units = units_of(bytes);
    if (units == 0) {
        return DV_OK;
    }
    if (units > dv_share_limit(share, device) / DV_UNIT) {
        __atomic_fetch_add(&share->gpu[device].refused, 1, __ATOMIC_RELAXED);
        return DV_NO_MEMORY;
    }
    if (__builtin_expect(own_slot(share) == SLOT_NONE, 0)) {
        dv_status status = claim_slot(share);
        if (status != DV_OK) {
            return status;
        }
    }
    switch (reserve_once(share, device, (uint32_t)units)) {
    case LEDGER_DONE:
        return DV_OK;
    case LEDGER_BROKEN:
        return DV_BUSY;
    default:
        return wait_for_room(share, device, (uint32_t)units);
    }
}

void dv_settle(dv_share *share, unsigned device, uint64_t reserved, uint64_t charged) {
    dv_page_gpu *gpu = find_gpu(share, device);
    uint64_t wanted = units_of(charged), given = units_of(reserved);
    if (gpu == NULL || (wanted == 0 && given == 0) ||
        (own_slot(share) == SLOT_NONE && claim_slot(share) != DV_OK)) {
        return;
    }
    unsigned slot = (unsigned)own_slot(share);
    dv_page_record *record = &gpu->record[slot];
    if (!os_lock(&record->lock, &record->waiters)) {
        return;
    }
    dv_page_intent after = record_balance(record);
    int64_t used = wanted < UNITS_MAX - after.charged ? (int64_t)wanted : UNITS_MAX - after.charged;
    int64_t pending = given < after.pending ? (int64_t)given : after.pending;
    after.charged = add_units(after.charged, used);
    after.pending = add_units(after.pending, -pending);
    apply(gpu, slot, after, used, -pending);
    os_unlock(&record->lock, &record->waiters);
    ledger_wake(gpu);
}

void dv_release(dv_share *share, unsigned device, uint64_t bytes) {
    dv_page_gpu *gpu = find_gpu(share, device);
    uint64_t units = units_of(bytes);
    if (gpu == NULL || units == 0 || own_slot(share) == SLOT_NONE) {
        return;
    }
    unsigned slot = (unsigned)own_slot(share);
    dv_page_record *record = &gpu->record[slot];
    if (!os_lock(&record->lock, &record->waiters)) {
        return;
    }
    dv_page_intent after = record_balance(record);
    int64_t used = units < after.charged ? (int64_t)units : after.charged;
    after.charged = add_units(after.charged, -used);
    apply(gpu, slot, after, -used, 0);
    os_unlock(&record->lock, &record->waiters);
    ledger_wake(gpu);
}

void dv_overhead(dv_share *share, unsigned device, uint64_t bytes_now) {
    dv_page_gpu *gpu = find_gpu(share, device);
    uint64_t units = units_of(bytes_now);
    if (gpu == NULL ||
        (own_slot(share) == SLOT_NONE && (units == 0 || claim_slot(share) != DV_OK))) {
        return;
    }
    unsigned slot = (unsigned)own_slot(share);
    dv_page_record *record = &gpu->record[slot];
    if (!os_lock(&record->lock, &record->waiters)) {
        return;
    }
    dv_page_intent after = record_balance(record);
    uint32_t now = units < UNITS_MAX ? (uint32_t)units : UNITS_MAX;
    int64_t growth = (int64_t)now - after.overhead;
    after.overhead = now;
    if (growth != 0) {
        apply(gpu, slot, after, growth, 0);
    }
    os_unlock(&record->lock, &record->waiters);
    if (growth < 0) {
        ledger_wake(gpu);
    }
}
