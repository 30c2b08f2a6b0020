/* Operations on the ledger. state.h tells how they survive the death of their process. */
#include "share/state.h"

/* Each failed swap means that another one succeeded. So many in a row, in about a second, mean that
 * a process writes without end. */
#define SWAP_TRIES (1u << 22)
#define RAISE_TRIES 64u
#define READ_TRIES 16u

#define HOT static inline __attribute__((always_inline))

static _Thread_local char thread_mark __attribute__((tls_model("initial-exec")));

const void *this_thread(void) {
    return &thread_mark;
}

static __attribute__((noinline)) bool raise_applied(dv_page_gpu *gpu, unsigned writer,
                                                    uint64_t id) {
    if (writer >= DV_PAGE_SLOTS) {
        return false;
    }
    for (unsigned i = 0; i < RAISE_TRIES; i++) {
        uint64_t present = load64(&gpu->applied[writer]);
        if (!id_after(id, present) || swap64(&gpu->applied[writer], present, id)) {
            return true;
        }
    }
    return false;
}

/* Notes the operation of this tag in applied, before the tag is overwritten. The slot's own next
 * operation needs that only now and then, so that applied does not fall half a wrap behind. */
HOT bool note_applied(dv_page_gpu *gpu, unsigned slot, uint64_t tag) {
    unsigned writer = tag_slot(tag);
    uint64_t id = tag_id(tag);
    if (__builtin_expect(writer == slot && (id >> 1 & UINT32_MAX) != 0, 1)) {
        return true;
    }
    return raise_applied(gpu, writer, id);
}

/* The id of the slot's last operation, for a tag that was read just before. */
HOT uint64_t last_id(const dv_page_gpu *gpu, unsigned slot, uint64_t tag) {
    return tag_slot(tag) == slot ? tag_id(tag) : load64(&gpu->applied[slot]);
}

HOT ledger_result judge(uint64_t amounts, const ledger_room *room) {
    uint64_t need = amounts_used(amounts) + room->wanted;
    if (need > room->limit) {
        return LEDGER_FULL;
    }
    need += amounts_pending(amounts) + room->held;
    return need > room->limit ? LEDGER_BLOCKED : LEDGER_DONE;
}

HOT int64_t clamp(int64_t amount, uint32_t present) {
    int64_t least = -(int64_t)present, most = (int64_t)UNITS_MAX - present;
    return amount < least ? least : amount > most ? most : amount;
}

/* Computes what the slot holds after the change and what to add to the totals, for both halves of
 * the word at once. No half overflows into the other as long as each slot takes out no more than it
 * put in and no GPU has 2 TiB. False if an exact change is not possible. */
HOT bool plan(balance before, const ledger_change *change, balance *after, uint64_t *total) {
    int64_t charged = clamp(change->charged, amounts_used(before.amounts));
    int64_t pending =
        clamp(change->moves ? -charged : change->pending, amounts_pending(before.amounts));
    if (change->exact && (charged != change->charged || pending != change->pending)) {
        return false;
    }
    uint64_t amounts = (uint64_t)charged + ((uint64_t)pending << 32);
    uint64_t overhead = (uint32_t)before.rest, action = before.rest >> 32;
    *total = amounts + (uint64_t)change->shared;
    if (change->overhead != KEPT) {
        *total += change->overhead - overhead;
        overhead = change->overhead;
    }
    action = change->action != KEPT ? change->action : action;
    *after = (balance){.amounts = before.amounts + amounts, .rest = action << 32 | overhead};
    return true;
}

static __attribute__((noinline)) void raise_peak(dv_page_gpu *gpu, uint32_t used) {
    for (unsigned i = 0; i < RAISE_TRIES; i++) {
        uint32_t present = load32(&gpu->peak);
        if (used <= present || __atomic_compare_exchange_n(&gpu->peak, &present, used, false,
                                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            return;
        }
    }
}

HOT ledger_result attempt(dv_page_gpu *gpu, unsigned slot, int lane, const ledger_change *change,
                          const ledger_room *room) {
    dv_page_journal *journal = &gpu->journal[slot];
    ledger_word old = load_ledger(gpu);
    if (room != NULL) {
        ledger_result result = judge(old.amounts, room);
        if (__builtin_expect(result != LEDGER_DONE, 0)) {
            return result;
        }
    }
    uint64_t last = last_id(gpu, slot, old.tag), id = next_id(last, (unsigned)lane), total;
    balance after;
    if (!plan(load_intent(&journal->intent[last & 3]), change, &after, &total)) {
        return LEDGER_FULL;
    }
    store_intent(&journal->intent[id & 3], after);
    if (!note_applied(gpu, slot, old.tag)) {
        return LEDGER_BROKEN;
    }
    ledger_word new = {.amounts = old.amounts + total, .tag = pack_tag(slot, id)};
    if (__builtin_expect(!swap_ledger(gpu, old, new), 0)) {
        return LEDGER_RACED;
    }
    if (__builtin_expect(amounts_used(new.amounts) > load32(&gpu->peak), 0)) {
        raise_peak(gpu, amounts_used(new.amounts));
    }
    return LEDGER_DONE;
}

static __attribute__((noinline)) ledger_result try_again(dv_page_gpu *gpu, unsigned slot, int lane,
                                                         ledger_change change,
                                                         const ledger_room *room) {
    for (unsigned i = 0; i < SWAP_TRIES; i++) {
        ledger_result result = attempt(gpu, slot, lane, &change, room);
        if (result != LEDGER_RACED) {
            return result;
        }
    }
    return LEDGER_BROKEN;
}

/* The first attempt is outside of the loop, so that the compiler has all registers for it. */
HOT ledger_result commit(dv_page_gpu *gpu, unsigned slot, int lane, const ledger_change *change,
                         const ledger_room *room) {
    ledger_result result = attempt(gpu, slot, lane, change, room);
    return __builtin_expect(result == LEDGER_RACED, 0) ? try_again(gpu, slot, lane, *change, room)
                                                       : result;
}

ledger_result ledger_commit(dv_page_gpu *gpu, unsigned slot, int lane,
                            const ledger_change *change) {
    return commit(gpu, slot, lane, change, NULL);
}

HOT int enter(dv_share *share, dv_page_gpu *gpu, unsigned slot) {
    if (__builtin_expect(share->owner == &thread_mark, 1)) {
        return 0;
    }
    return os_lock(&gpu->gate[slot].lock, &gpu->gate[slot].waiters) ? LANE_GATED : -1;
}

HOT void leave(dv_page_gpu *gpu, unsigned slot, int lane) {
    if (lane == LANE_GATED) {
        os_unlock(&gpu->gate[slot].lock, &gpu->gate[slot].waiters);
    }
}

int lane_enter(dv_share *share, dv_page_gpu *gpu, unsigned slot) {
    return enter(share, gpu, slot);
}

void lane_leave(dv_page_gpu *gpu, unsigned slot, int lane) {
    leave(gpu, slot, lane);
}

balance journal_balance(const dv_page_gpu *gpu, unsigned slot) {
    return load_intent(&gpu->journal[slot].intent[last_id(gpu, slot, load64(&gpu->tag)) & 3]);
}

uint64_t journal_last(const dv_page_gpu *gpu, unsigned slot) {
    return last_id(gpu, slot, load64(&gpu->tag));
}

/* The figures may be of two moments if the process changes them too fast. */
balance journal_read(const dv_page_gpu *gpu, unsigned slot) {
    balance present = {0, 0};
    for (unsigned i = 0; i < READ_TRIES; i++) {
        uint64_t last = last_id(gpu, slot, load64(&gpu->tag));
        present = load_intent(&gpu->journal[slot].intent[last & 3]);
        load_fence();
        if (last_id(gpu, slot, load64(&gpu->tag)) == last) {
            break;
        }
    }
    return present;
}

static void wake_waiters(dv_page_gpu *gpu) {
    __atomic_store_n(&gpu->waiting, 0, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&gpu->wake, 1, __ATOMIC_SEQ_CST);
    os_futex_wake(&gpu->wake);
}

/* swap_ledger is a full barrier, so this sees a waiter that announced itself before it looked at
 * the word. In any case wait_for_room looks again after a while. */
HOT void wake(dv_page_gpu *gpu) {
    if (__builtin_expect(__atomic_load_n(&gpu->waiting, __ATOMIC_RELAXED) != 0, 0)) {
        wake_waiters(gpu);
    }
}

void ledger_wake(dv_page_gpu *gpu) {
    wake(gpu);
}

/* Leaves room for what the agent measured. since is NULL for a request that has not waited yet. */
static __attribute__((noinline)) void
leave_overhead(dv_share *share, unsigned device, const overhead_since *since, ledger_room *room) {
    overhead_since now = since != NULL ? *since : overhead_now(share, device);
    uint64_t doubtful, certain = overhead_counted(share, device, &now, &doubtful);
    room->limit -= certain < room->limit ? certain : room->limit;
    room->held += doubtful;
}

HOT ledger_result reserve(dv_share *share, unsigned device, unsigned slot, uint64_t limit,
                          uint32_t units, const overhead_since *since) {
    dv_page_gpu *gpu = &share->gpu[device];
    ledger_room room = {.limit = limit, .wanted = units};
    if (__builtin_expect(load64(&gpu->turn) != 0, 0)) {
        room.held = turn_of_others(share, gpu);
    }
    if (__builtin_expect(load64(&share->config->device[device].overhead) != 0, 0)) {
        leave_overhead(share, device, since, &room);
    }
    int lane = enter(share, gpu, slot);
    if (lane < 0) {
        return LEDGER_BROKEN;
    }
    ledger_change change = {.pending = units, .overhead = KEPT, .action = KEPT};
    ledger_result result = commit(gpu, slot, lane, &change, &room);
    leave(gpu, slot, lane);
    return result;
}

ledger_result reserve_once(dv_share *share, unsigned device, uint32_t units,
                           const overhead_since *since) {
    return reserve(share, device, (unsigned)own_slot(share), limit_units(share, device), units,
                   since);
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
        return DV_NO_MEMORY;
    }
    if (__builtin_expect(own_slot(share) == SLOT_NONE, 0)) {
        dv_status status = ensure_slot(share);
        if (status != DV_OK) {
            return status;
        }
    }
    ledger_result result =
        reserve(share, device, (unsigned)own_slot(share), limit, (uint32_t)units, NULL);
    if (__builtin_expect(result == LEDGER_DONE, 1)) {
        return DV_OK;
    }
    return result == LEDGER_BROKEN ? DV_BUSY : wait_for_room(share, device, (uint32_t)units);
}

/* Makes a change that is never refused. */
HOT void apply(dv_share *share, unsigned device, ledger_change change) {
    dv_page_gpu *gpu = &share->gpu[device];
    unsigned slot = (unsigned)own_slot(share);
    int lane = enter(share, gpu, slot);
    if (lane < 0) {
        return;
    }
    commit(gpu, slot, lane, &change, NULL);
    leave(gpu, slot, lane);
    wake(gpu);
}

HOT bool has_slot(dv_share *share) {
    return __builtin_expect(own_slot(share) != SLOT_NONE, 1) || ensure_slot(share) == DV_OK;
}

/* Cuts amounts to the most that the ledger can count, which is more than any GPU has. */
HOT int64_t signed_units(uint64_t bytes) {
    uint64_t units = units_of(bytes);
    return units < UNITS_MAX ? (int64_t)units : UNITS_MAX;
}

void dv_settle(dv_share *share, unsigned device, uint64_t reserved, uint64_t charged) {
    if (device < share->device_count && (reserved | charged) != 0 && has_slot(share)) {
        apply(share, device,
              (ledger_change){.charged = signed_units(charged),
                              .pending = -signed_units(reserved),
                              .overhead = KEPT,
                              .action = KEPT});
    }
}

void dv_retire(dv_share *share, unsigned device, uint64_t bytes) {
    if (device < share->device_count && bytes != 0 && own_slot(share) != SLOT_NONE) {
        apply(
            share, device,
            (ledger_change){
                .charged = -signed_units(bytes), .moves = true, .overhead = KEPT, .action = KEPT});
    }
}

void dv_release(dv_share *share, unsigned device, uint64_t bytes) {
    if (device < share->device_count && bytes != 0 && own_slot(share) != SLOT_NONE) {
        apply(share, device,
              (ledger_change){.charged = -signed_units(bytes), .overhead = KEPT, .action = KEPT});
    }
}

void dv_overhead(dv_share *share, unsigned device, uint64_t bytes_now) {
    if (device < share->device_count &&
        (own_slot(share) != SLOT_NONE || (bytes_now != 0 && has_slot(share)))) {
        apply(share, device,
              (ledger_change){.overhead = (uint64_t)signed_units(bytes_now), .action = KEPT});
    }
}
