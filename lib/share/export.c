/* Exported memory. It is charged to the share as long as a process of the share holds it or a file
 * descriptor of it is open anywhere (descriptor.c).
 *
 * One process at a time changes the table, under a lock that names its slot. If that process dies,
 * the next process that wants the lock reaps it and takes over the lock in its name. Bytes move
 * between a slot and the table by one operation of the slot's ledger, whose intent names the
 * export. After the swap the process itself or its reaper changes the table to match
 * (export_replay). */
#include "share/state.h"

#include <string.h>

#define DEAD_SLICES                                                                                \
    50u /* a reaper gives up after about 10 ms, because there will be another reap */
#define MOVE_TRIES 64u
#define LOOK_SLICES 32u /* how often a waiter looks whether the holder of the lock is alive */

/* Takes the lock from a holder that is not a living process: it is dead and reaped, or was never a
 * slot. */
static bool take_over(dv_share *share, uint32_t holder, unsigned slot) {
    bool nobody =
        holder > DV_PAGE_SLOTS || (!reap_one(share, holder - 1) && slot_vacant(share, holder - 1));
    return nobody && swap32(&share->state->export_lock, holder, slot + 1);
}

bool lock_exports(dv_share *share, unsigned slot, bool dead) {
    dv_page_state *state = share->state;
    unsigned slices = dead ? DEAD_SLICES : OS_LOCK_SLICES;
    for (unsigned i = 0; i < slices; i++) {
        uint32_t holder = load32(&state->export_lock);
        if (holder == 0 && swap32(&state->export_lock, 0, slot + 1)) {
            return true;
        }
        if (dead && holder == slot + 1) {
            return true;
        }
        if (holder != 0 && i % LOOK_SLICES == 1 && take_over(share, holder, slot)) {
            return true;
        }
        __atomic_store_n(&state->export_waiters, 1, __ATOMIC_SEQ_CST);
        os_futex_wait(&state->export_lock, holder, OS_LOCK_SLICE_NS);
    }
    return false;
}

void unlock_exports(dv_share *share) {
    os_unlock(&share->state->export_lock, &share->state->export_waiters);
}

static void set_holder(dv_page_export *export, unsigned slot, bool holds) {
    uint64_t *word = &export->holders[slot / 64];
    uint64_t bit = UINT64_C(1) << slot % 64;
    store64(word, holds ? load64(word) | bit : load64(word) & ~bit);
}

static bool is_holder(const dv_page_export *export, unsigned slot) {
    return (load64(&export->holders[slot / 64]) >> slot % 64 & 1) != 0;
}

bool export_has_holders(const dv_page_export *export) {
    uint64_t any = 0;
    for (unsigned i = 0; i < DV_PAGE_HOLDER_WORDS; i++) {
        any |= load64(&export->holders[i]);
    }
    return any != 0;
}

/* Changes the table to match an operation that has happened. May be repeated while the lock is
 * held. */
void export_replay(dv_share *share, unsigned slot, uint32_t action) {
    uint32_t place = (action >> DV_PAGE_ACTION_BITS) - 1;
    if (place >= DV_PAGE_EXPORTS) {
        return;
    }
    dv_page_export *export = &share->state->export[place];
    switch (action & ((1u << DV_PAGE_ACTION_BITS) - 1)) {
    case DV_PAGE_ACTION_PUBLISH:
        for (unsigned i = 0; i < DV_PAGE_HOLDER_WORDS; i++) {
            store64(&export->holders[i], 0);
        }
        set_holder(export, slot, true);
        store32(&export->state, DV_PAGE_EXPORT_LIVE);
        break;
    case DV_PAGE_ACTION_GROW:
        store32(&export->units, load32(&export->grown));
        break;
    case DV_PAGE_ACTION_FREE:
        store32(&export->state, DV_PAGE_EXPORT_FREE);
        break;
    default:
        break;
    }
}

/* Commits an operation that moves memory to or from the table, changes the table, and commits one
 * more operation that forgets the action, because nobody may repeat it once the lock is given back.
 */
static ledger_result commit_action(dv_share *share, unsigned slot, int lane, dv_page_export *export,
                                   ledger_change change, uint32_t kind) {
    dv_page_gpu *gpu = &share->gpu[export->device];
    uint32_t place = (uint32_t)(export - share->state->export);
    change.action = (place + 1) << DV_PAGE_ACTION_BITS | kind;
    ledger_result result = ledger_commit(gpu, slot, lane, &change);
    if (result == LEDGER_DONE) {
        export_replay(share, slot, (uint32_t)change.action);
        ledger_change forget = {.overhead = KEPT, .action = DV_PAGE_ACTION_NONE};
        result = ledger_commit(gpu, slot, lane, &forget);
        ledger_wake(gpu);
    }
    return result;
}

ledger_result export_end(dv_share *share, unsigned slot, int lane, dv_page_export *export) {
    ledger_change change = {.shared = -(int64_t)load32(&export->units), .overhead = KEPT};
    return commit_action(share, slot, lane, export, change, DV_PAGE_ACTION_FREE);
}

/* Whether nothing keeps the memory that a look at its descriptors could show to be gone. */
static bool is_unheld(const dv_page_export *export) {
    return !export_has_holders(export) && load32(&export->descriptors) == DV_PAGE_DESCRIPTORS_NONE;
}

/* Ends all holds of a dead process. What a descriptor may keep stays until somebody looks for it.
 * False if the ledger refused the change. */
bool export_leave(dv_share *share, unsigned slot) {
    bool clean = true;
    for (unsigned i = 0; i < export_count(share); i++) {
        dv_page_export *export = &share->state->export[i];
        if (load32(&export->state) != DV_PAGE_EXPORT_LIVE) {
            continue;
        }
        if (is_holder(export, slot)) {
            set_holder(export, slot, false);
        }
        if (load32(&export->device) >= share->device_count) {
            store32(&export->state, DV_PAGE_EXPORT_FREE);
        } else if (is_unheld(export)) {
            clean = export_end(share, slot, LANE_GATED, export) == LEDGER_DONE && clean;
        }
    }
    return clean;
}

dv_page_export *export_find(dv_share *share, const void *key) {
    for (unsigned i = 0; i < export_count(share); i++) {
        dv_page_export *export = &share->state->export[i];
        if (load32(&export->state) == DV_PAGE_EXPORT_LIVE &&
            memcmp(export->key, key, sizeof export->key) == 0) {
            return export;
        }
    }
    return NULL;
}

/* An entry for the memory under a key, which becomes one only when it is published. */
static dv_page_export *new_export(dv_share *share, unsigned device, const void *key) {
    unsigned i = 0, count = export_count(share);
    while (i < count && load32(&share->state->export[i].state) != DV_PAGE_EXPORT_FREE) {
        i++;
    }
    if (i == DV_PAGE_EXPORTS) {
        return NULL;
    }
    if (i == count) {
        store32(&share->state->export_count, i + 1);
    }
    dv_page_export *export = &share->state->export[i];
    store32(&export->device, device);
    store32(&export->units, 0);
    store32(&export->descriptors, DV_PAGE_DESCRIPTORS_NONE);
    store64(&export->mark, 0);
    memcpy(export->key, key, sizeof export->key);
    return export;
}

/* Moves units that are charged to the process to an entry, a new one or with GROW one that exists.
 * Another thread may release at the same time. So if the exact move is not possible, what the
 * process has is read again. */
static ledger_result move_to_table(dv_share *share, unsigned slot, dv_page_export *export,
                                   uint64_t units, uint32_t kind) {
    dv_page_gpu *gpu = &share->gpu[export->device];
    uint32_t present = kind == DV_PAGE_ACTION_GROW ? load32(&export->units) : 0;
    int lane = lane_enter(share, gpu, slot);
    ledger_result result = lane < 0 ? LEDGER_BROKEN : LEDGER_FULL;
    for (unsigned i = 0; i < MOVE_TRIES && result == LEDGER_FULL; i++) {
        uint32_t charged = amounts_used(journal_read(gpu, slot).amounts);
        uint32_t moved = units < charged ? (uint32_t)units : charged;
        ledger_change change = {
            .charged = -(int64_t)moved, .shared = moved, .overhead = KEPT, .exact = true};
        store32(kind == DV_PAGE_ACTION_GROW ? &export->grown : &export->units, present + moved);
        result = commit_action(share, slot, lane, export, change, kind);
    }
    if (lane >= 0) {
        lane_leave(gpu, slot, lane);
    }
    return result;
}

/* Counts one more hold of this process, among all its threads. */
static void count_hold(dv_share *share, dv_page_export *export) {
    store32(&export->begun, load32(&export->begun) + 1);
    share->holds[export - share->state->export]++;
}

/* Notes how much of an entry this process has made, for as long as it is a holder. */
static void note_made(dv_share *share, const dv_page_export *export, uint32_t units) {
    unsigned place = (unsigned)(export - share->state->export);
    uint64_t *exported = &share->exported[load32(&export->device) % DV_PAGE_DEVICES];
    store64(exported, load64(exported) + units - share->made[place]);
    share->made[place] = units;
}

static dv_status publish(dv_share *share, unsigned slot, unsigned device, const void *key,
                         uint64_t units) {
    dv_page_export *export = export_find(share, key);
    if (export != NULL) {
        return is_holder(export, slot) ? DV_OK : DV_CORRUPT;
    }
    export = new_export(share, device, key);
    if (export == NULL) {
        return DV_NO_SLOT;
    }
    share->holds[export - share->state->export] = 0;
    if (move_to_table(share, slot, export, units, DV_PAGE_ACTION_PUBLISH) != LEDGER_DONE) {
        return DV_BUSY;
    }
    note_made(share, export, load32(&export->units));
    count_hold(share, export);
    return DV_OK;
}

static dv_status hold(dv_share *share, unsigned slot, const void *key) {
    dv_page_export *export = export_find(share, key);
    if (export == NULL) {
        return DV_NO_EXPORT;
    }
    if (!is_holder(export, slot)) {
        set_holder(export, slot, true);
        share->holds[export - share->state->export] = 0;
    }
    count_hold(share, export);
    return DV_OK;
}

/* *place becomes the place of the entry + 1 if descriptors alone may keep it from now on. */
static dv_status drop(dv_share *share, unsigned slot, const void *key, unsigned *place) {
    dv_page_export *export = export_find(share, key);
    if (export == NULL || !is_holder(export, slot)) {
        return DV_NO_EXPORT;
    }
    uint16_t *holds = &share->holds[export - share->state->export];
    if (*holds > 1) {
        *holds -= 1;
        return DV_OK;
    }
    *holds = 0;
    note_made(share, export, 0);
    set_holder(export, slot, false);
    if (!is_unheld(export)) {
        *place = (unsigned)(export - share->state->export) + 1;
        return DV_OK;
    }
    if (load32(&export->device) >= share->device_count) {
        return DV_CORRUPT;
    }
    dv_page_gpu *gpu = &share->gpu[export->device];
    int lane = lane_enter(share, gpu, slot);
    if (lane < 0) {
        return DV_BUSY;
    }
    ledger_result result = export_end(share, slot, lane, export);
    lane_leave(gpu, slot, lane);
    return result == LEDGER_DONE ? DV_OK : DV_BUSY;
}

/* Makes sure that the process has a slot and takes the lock of the table; returns why if either
 * fails. */
dv_status export_enter(dv_share *share) {
    if (own_slot(share) == SLOT_NONE) {
        dv_status status = ensure_slot(share);
        if (status != DV_OK) {
            return status;
        }
    }
    return lock_exports(share, (unsigned)own_slot(share), false) ? DV_OK : DV_BUSY;
}

/* Older drivers' checkpoints save no process that has such memory. */
static void note_ipc(const dv_share *share) {
    dv_page_present *present = &share->gpu[0].present[own_slot(share)];
    __atomic_fetch_or(&present->unsaved, DV_PAGE_UNSAVED_IPC, __ATOMIC_RELAXED);
}

dv_status dv_export_publish(dv_share *share, unsigned device, const void *key, uint64_t bytes) {
    if (device >= share->device_count) {
        return DV_NO_DEVICE;
    }
    dv_status status = export_enter(share);
    if (status == DV_OK) {
        note_ipc(share);
        status = publish(share, (unsigned)own_slot(share), device, key, units_of(bytes));
        unlock_exports(share);
    }
    return status;
}

dv_status dv_export_hold(dv_share *share, const void *key) {
    dv_status status = export_enter(share);
    if (status == DV_OK) {
        note_ipc(share);
        status = hold(share, (unsigned)own_slot(share), key);
        unlock_exports(share);
    }
    return status;
}

dv_status dv_export_join(dv_share *share, unsigned device, const void *key) {
    if (device >= share->device_count) {
        return DV_NO_DEVICE;
    }
    dv_status status = export_enter(share);
    if (status == DV_OK) {
        unsigned slot = (unsigned)own_slot(share);
        note_ipc(share);
        status = hold(share, slot, key);
        status = status == DV_NO_EXPORT ? publish(share, slot, device, key, 0) : status;
        unlock_exports(share);
    }
    return status;
}

uint64_t dv_export_lacks(dv_share *share, const void *key, uint64_t bytes) {
    uint64_t units = units_of(bytes), lacks = 0;
    if (export_enter(share) == DV_OK) {
        const dv_page_export *export = export_find(share, key);
        uint64_t present = export != NULL ? load32(&export->units) : 0;
        lacks = units > present ? units - present : 0;
        unlock_exports(share);
    }
    return lacks * DV_PAGE_UNIT;
}

void dv_export_grow(dv_share *share, unsigned device, const void *key, uint64_t bytes,
                    uint64_t charged) {
    uint64_t units = units_of(bytes), most = units_of(charged), more = most;
    if (charged == 0 || device >= share->device_count || export_enter(share) != DV_OK) {
        return;
    }
    unsigned slot = (unsigned)own_slot(share);
    dv_page_export *export = export_find(share, key);
    if (export != NULL && is_holder(export, slot) && load32(&export->device) == device) {
        more = units > load32(&export->units) ? units - load32(&export->units) : 0;
        more = more < most ? more : most;
        if (more > 0 &&
            move_to_table(share, slot, export, more, DV_PAGE_ACTION_GROW) != LEDGER_DONE) {
            more = most; /* all stays with the process */
        }
    }
    unlock_exports(share);
    dv_release(share, device, (most - more) * DV_PAGE_UNIT);
}

dv_status dv_export_drop(dv_share *share, const void *key) {
    unsigned place = 0;
    if (own_slot(share) == SLOT_NONE) {
        return DV_NO_EXPORT;
    }
    dv_status status = lock_exports(share, (unsigned)own_slot(share), false) ? DV_OK : DV_BUSY;
    if (status == DV_OK) {
        status = drop(share, (unsigned)own_slot(share), key, &place);
        unlock_exports(share);
    }
    if (place != 0) {
        exports_settle(share, place - 1, place);
    }
    return status;
}
