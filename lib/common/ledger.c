/* Operations of the calling process on its own record. state.h tells how they survive its death. */
#include "common/state.h"

/* Each failed swap means that a neighbour's succeeded, so this many in a row mean that somebody
 * writes for the sake of writing. About a second. */
#define SWAP_TRIES (1u << 22)
#define RAISE_TRIES 64u

#define HOT static inline __attribute__((always_inline))

static bool raise_applied(dv_page_gpu *gpu, unsigned writer, uint64_t sequence) {
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

/* Notes that the operation of this tag has happened, before the tag is overwritten. Not needed for
 * the slot's own tag, whose number then is record.done; only now and then, so that applied does not
 * fall half a wrap behind. */
HOT bool note_applied(dv_page_gpu *gpu, unsigned slot, uint64_t tag) {
    unsigned writer = tag_slot(tag);
    uint64_t sequence = tag_sequence(tag);
    if (__builtin_expect(writer == slot && (sequence & UINT32_MAX) != 0, 1)) {
        return true;
    }
    return raise_applied(gpu, writer, sequence);
}

HOT ledger_result judge(uint64_t amounts, const ledger_room *room) {
    uint64_t need = amounts_used(amounts) + room->wanted;
    if (need > room->limit) {
        return LEDGER_FULL;
    }
    need += amounts_pending(amounts) + room->held;
    return need > room->limit ? LEDGER_BLOCKED : LEDGER_DONE;
}

/* The change is added to both halves at once. No half can overflow into the other while every slot
 * takes out no more than it put in and no GPU has 2 TiB. */
HOT ledger_result commit(dv_page_gpu *gpu, unsigned slot, balance after, uint64_t change,
                         const ledger_room *room) {
    dv_page_record *record = &gpu->record[slot];
    uint64_t sequence = (load64(&record->done) + 1) & SEQUENCE_MASK;
    store_intent(&record->intent[sequence & 1], after);
    store64(&record->sequence, sequence);
    for (unsigned i = 0; i < SWAP_TRIES; i++) {
        ledger_word old = load_ledger(gpu);
        if (room != NULL) {
            ledger_result result = judge(old.amounts, room);
            if (__builtin_expect(result != LEDGER_DONE, 0)) {
                return result;
            }
        }
        if (!note_applied(gpu, slot, old.tag)) {
            return LEDGER_BROKEN;
        }
        ledger_word new = {.amounts = old.amounts + change, .tag = pack_tag(slot, sequence)};
        if (__builtin_expect(swap_ledger(gpu, old, new), 1)) {
            return LEDGER_DONE;
        }
    }
    return LEDGER_BROKEN;
}

HOT void complete(dv_page_record *record) {
    store64(&record->done, __atomic_load_n(&record->sequence, __ATOMIC_RELAXED));
}

ledger_result ledger_commit(dv_page_gpu *gpu, unsigned slot, balance after, uint64_t change) {
    return commit(gpu, slot, after, change, NULL);
}

void ledger_complete(dv_page_gpu *gpu, unsigned slot) {
    complete(&gpu->record[slot]);
}

static void wake_waiters(dv_page_gpu *gpu) {
    __atomic_store_n(&gpu->waiting, 0, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&gpu->wake, 1, __ATOMIC_SEQ_CST);
    os_futex_wake(&gpu->wake);
}

/* swap_ledger is a full barrier, so a waiter that announced itself before it looked at the word is
 * seen here; wait_for_room looks again after a while in any case. */
HOT void wake(dv_page_gpu *gpu) {
    if (__builtin_expect(__atomic_load_n(&gpu->waiting, __ATOMIC_RELAXED) != 0, 0)) {
        wake_waiters(gpu);
    }
}

void ledger_wake(dv_page_gpu *gpu) {
    wake(gpu);
}

HOT ledger_result reserve(dv_share *share, unsigned device, unsigned slot, uint64_t limit,
                          uint32_t units) {
    dv_page_gpu *gpu = &share->gpu[device];
    dv_page_record *record = &gpu->record[slot];
    ledger_room room = {.limit = limit, .wanted = units};
    if (__builtin_expect(load64(&gpu->turn) != 0, 0)) {
        room.held = turn_of_others(share, gpu);
    }
    if (!os_lock(&record->lock, &record->waiters)) {
        return LEDGER_BROKEN;
    }
    balance after = record_balance(record);
    after.amounts += pack_amounts(0, units);
    ledger_result result = commit(gpu, slot, after, pack_amounts(0, units), &room);
    if (result == LEDGER_DONE) {
        complete(record);
    }
    os_unlock(&record->lock, &record->waiters);
    return result;
}

ledger_result reserve_once(dv_share *share, unsigned device, uint32_t units) {
    return reserve(share, device, (unsigned)own_slot(share), limit_units(share, device), units);
}

dv_status dv_reserve(dv_share *share, unsigned device, uint64_t bytes) {
    if (device >= share->device_count) {
        return DV_NO_DEVICE;
    }
    uint64_t units = units_of(bytes), limit = limit_units(share, device);
    if (units == 0) {
        return DV_OK;
    }
    if (units > limit) {
        __atomic_fetch_add(&share->gpu[device].refused, 1, __ATOMIC_RELAXED);
        return DV_NO_MEMORY;
    }
    if (__builtin_expect(own_slot(share) == SLOT_NONE, 0)) {
        dv_status status = claim_slot(share);
        if (status != DV_OK) {
            return status;
        }
    }
    ledger_result result =
        reserve(share, device, (unsigned)own_slot(share), limit, (uint32_t)units);
    if (__builtin_expect(result == LEDGER_DONE, 1)) {
        return DV_OK;
    }
    return result == LEDGER_BROKEN ? DV_BUSY : wait_for_room(share, device, (uint32_t)units);
}

/* What is never refused: charged, pending and overhead of this process change so that each stays
 * within 0 and UNITS_MAX. */
typedef struct change {
    int64_t charged, pending;
    uint64_t overhead; /* absolute; OVERHEAD_KEPT leaves it */
} change;
#define OVERHEAD_KEPT UINT64_MAX

HOT int64_t clamp(int64_t amount, uint32_t present) {
    int64_t least = -(int64_t)present, most = (int64_t)UNITS_MAX - present;
    return amount < least ? least : amount > most ? most : amount;
}

HOT void apply(dv_share *share, unsigned device, change wanted) {
    dv_page_gpu *gpu = &share->gpu[device];
    unsigned slot = (unsigned)own_slot(share);
    dv_page_record *record = &gpu->record[slot];
    if (!os_lock(&record->lock, &record->waiters)) {
        return;
    }
    balance before = record_balance(record);
    uint32_t overhead = (uint32_t)before.rest;
    int64_t charged = clamp(wanted.charged, amounts_used(before.amounts));
    int64_t pending = clamp(wanted.pending, amounts_pending(before.amounts));
    int64_t growth = 0;
    if (wanted.overhead != OVERHEAD_KEPT) {
        growth = (int64_t)wanted.overhead - overhead;
        overhead = (uint32_t)wanted.overhead;
    }
    uint64_t amounts = (uint64_t)charged + ((uint64_t)pending << 32);
    balance after = {.amounts = before.amounts + amounts, .rest = overhead};
    if (commit(gpu, slot, after, amounts + (uint64_t)growth, NULL) == LEDGER_DONE) {
        complete(record);
    }
    os_unlock(&record->lock, &record->waiters);
    wake(gpu);
}

HOT bool has_slot(dv_share *share) {
    return __builtin_expect(own_slot(share) != SLOT_NONE, 1) || claim_slot(share) == DV_OK;
}

/* Amounts beyond what the ledger counts saturate; no GPU has them. */
HOT int64_t signed_units(uint64_t bytes) {
    uint64_t units = units_of(bytes);
    return units < UNITS_MAX ? (int64_t)units : UNITS_MAX;
}

void dv_settle(dv_share *share, unsigned device, uint64_t reserved, uint64_t charged) {
    if (device < share->device_count && (reserved | charged) != 0 && has_slot(share)) {
        apply(share, device,
              (change){signed_units(charged), -signed_units(reserved), OVERHEAD_KEPT});
    }
}

void dv_retire(dv_share *share, unsigned device, uint64_t bytes) {
    if (device < share->device_count && bytes != 0 && own_slot(share) != SLOT_NONE) {
        apply(share, device, (change){-signed_units(bytes), signed_units(bytes), OVERHEAD_KEPT});
    }
}

void dv_release(dv_share *share, unsigned device, uint64_t bytes) {
    if (device < share->device_count && bytes != 0 && own_slot(share) != SLOT_NONE) {
        apply(share, device, (change){-signed_units(bytes), 0, OVERHEAD_KEPT});
    }
}

void dv_overhead(dv_share *share, unsigned device, uint64_t bytes_now) {
    if (device < share->device_count &&
        (own_slot(share) != SLOT_NONE || (bytes_now != 0 && has_slot(share)))) {
        apply(share, device, (change){0, 0, (uint64_t)signed_units(bytes_now)});
    }
}
