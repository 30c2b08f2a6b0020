/* Takes the balances of dead processes out of the totals.
 *
 * A reaper that holds the OFD lock of a slot whose process died may write the slot's journals. If
 * the reaper dies, the next one can repeat each step. The last step sets the slot's pid to 0. */
#include "share/state.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "libc/cancel.h"

/* Takes what the slot holds out of the totals, by one more operation in the slot's journal. If the
 * reaper dies, the next one finds either this operation or the one before. */
static bool clear_journal(dv_page_gpu *gpu, unsigned slot, uint64_t *bytes) {
    balance held = journal_balance(gpu, slot);
    if (held.amounts == 0 && held.rest == 0) {
        return true;
    }
    ledger_change change = {.charged = -(int64_t)amounts_used(held.amounts),
                            .pending = -(int64_t)amounts_pending(held.amounts),
                            .overhead = 0,
                            .action = DV_PAGE_ACTION_NONE};
    if (ledger_commit(gpu, slot, LANE_GATED, &change) != LEDGER_DONE) {
        return false;
    }
    *bytes += held_bytes(held) + (uint64_t)amounts_pending(held.amounts) * DV_PAGE_UNIT;
    ledger_wake(gpu);
    return true;
}

/* Reaps the slot, whose lock the caller holds and whose process is dead. False if it has to be
 * tried again later, because the process has not closed the driver's files yet or a neighbour holds
 * the table of exports. *bytes is what was freed, without exported memory. */
bool reap_slot(dv_share *share, unsigned slot, const dv_strangers *strangers, uint64_t *bytes) {
    dv_page_slot *info = &share->state->slot[slot];
    *bytes = 0;
    if (slot_exiting(share, slot, strangers) || !lock_exports(share, slot, true)) {
        return false;
    }
    for (unsigned i = 0; i < share->device_count; i++) {
        export_replay(share, slot, (uint32_t)(journal_balance(&share->gpu[i], slot).rest >> 32));
    }
    bool clean = export_leave(share, slot);
    for (unsigned i = 0; i < share->device_count; i++) {
        overhead_eased(&share->gpu[i]);
        clean = clear_journal(&share->gpu[i], slot, bytes) && clean;
    }
    unlock_exports(share);
    if (clean) {
        __atomic_fetch_add(&share->state->reaps, 1, __ATOMIC_SEQ_CST);
        store32(&info->pid, 0);
    }
    return clean;
}

/* Marks a slot that was found dead before its lock is taken, because until the slot is empty a
 * taken lock only means that it is being reaped. The mark names the generation, so it does not
 * apply to a process that has taken the slot meanwhile. */
enum found look_at(const dv_share *share, int file, unsigned slot) {
    dv_page_slot *info = &share->state->slot[slot];
    uint64_t generation = load64(&info->generation);
    if (load32(&info->pid) == 0) {
        return FOUND_EMPTY;
    }
    if ((int)slot == own_slot(share)) {
        return FOUND_LIVE;
    }
    if (os_byte_locked(file, DV_PAGE_LOCK_BASE + slot)) {
        return load64(&info->reaping) == generation ? FOUND_REAPING : FOUND_LIVE;
    }
    if (share->writable) {
        store64(&info->reaping, generation);
    }
    return FOUND_DEAD;
}

/* True if no process has the slot and it is not being reaped. */
bool slot_vacant(dv_share *share, unsigned slot) {
    UNCANCELLED;
    int saved = errno;
    int file = open_state(share, O_RDONLY);
    bool locked = file < 0 || os_byte_locked(file, DV_PAGE_LOCK_BASE + slot);
    if (file >= 0) {
        close(file);
    }
    errno = saved;
    return !locked && load32(&share->state->slot[slot].pid) == 0;
}

/* Tries to lock and reap a slot that was found dead. True if it is reaped, by us or by a neighbour
 * that was faster. */
static bool reap_dead(dv_share *share, int file, unsigned slot, const dv_reaper *reaper,
                      dv_sweep *sweep) {
    uint64_t bytes = 0;
    if (!os_try_lock_byte(file, DV_PAGE_LOCK_BASE + slot)) {
        return false;
    }
    uint32_t pid = load32(&share->state->slot[slot].pid);
    bool gone = pid == 0;
    if (!gone && reap_slot(share, slot, reaper == NULL ? NULL : &reaper->strangers, &bytes)) {
        gone = true;
        sweep->reaped++;
        if (reaper != NULL) {
            reaper->visit(reaper->arg, slot, pid, bytes);
        }
    }
    os_unlock_byte(file, DV_PAGE_LOCK_BASE + slot);
    return gone;
}

/* Looks for dead processes through a read-only file. One for writing is opened only if there are
 * any, because the agent takes the closing of such a file as a sign of a death. */
dv_sweep reap_all(dv_share *share, dv_reaper *reaper) {
    UNCANCELLED;
    dv_sweep sweep = {.live = 0};
    int saved = errno;
    int look = open_state(share, O_RDONLY), write = -1;
    unsigned count = look < 0 ? 0 : slot_count(share);
    uint64_t end = os_now_ns() + DV_WAIT_NS;
    if (reaper != NULL) {
        look_at_strangers(share, look, &reaper->strangers);
    }
    for (unsigned slot = 0; slot < count; slot++) {
        enum found found = look_at(share, look, slot);
        sweep.live += found == FOUND_LIVE;
        if (found == FOUND_DEAD && share->writable) {
            write = write < 0 ? open_state(share, O_RDWR) : write;
            bool gone = write >= 0 && reap_dead(share, write, slot, reaper, &sweep);
            sweep.unfinished += !gone;
            if (!gone && os_now_ns() > end) {
                break;
            }
        }
        sweep.unfinished += found == FOUND_REAPING || (found == FOUND_DEAD && !share->writable);
    }
    if (write >= 0) {
        close(write);
    }
    if (look >= 0) {
        close(look);
    }
    errno = saved;
    return sweep;
}

/* Reaps the slot if its process is dead. True if that freed it. */
bool reap_one(dv_share *share, unsigned slot) {
    UNCANCELLED;
    dv_sweep sweep = {.live = 0};
    int saved = errno;
    int file = slot < DV_PAGE_SLOTS ? open_state(share, O_RDWR) : -1;
    if (file >= 0) {
        if (look_at(share, file, slot) == FOUND_DEAD) {
            reap_dead(share, file, slot, NULL, &sweep);
        }
        close(file);
    }
    errno = saved;
    return sweep.reaped > 0;
}

unsigned dv_reap(dv_share *share) {
    return reap_all(share, NULL).reaped;
}

bool dv_own(dv_share *share, unsigned device, dv_own_t *own) {
    int slot = own_slot(share);
    *own = (dv_own_t){0};
    if (device >= share->device_count) {
        return false;
    }
    if (slot != SLOT_NONE) {
        own->operation = journal_last(&share->gpu[device], (unsigned)slot);
        balance held = journal_read(&share->gpu[device], (unsigned)slot);
        own->charged = (uint64_t)amounts_used(held.amounts) * DV_PAGE_UNIT;
        own->pending = (uint64_t)amounts_pending(held.amounts) * DV_PAGE_UNIT;
        own->overhead = (uint64_t)(uint32_t)held.rest * DV_PAGE_UNIT;
        own->exported = load64(&share->exported[device]) * DV_PAGE_UNIT;
    }
    return true;
}

void dv_processes(dv_share *share, bool (*visit)(const dv_process *process, void *arg), void *arg) {
    UNCANCELLED;
    int saved = errno;
    int file = open_state(share, O_RDONLY);
    unsigned count = file < 0 ? 0 : slot_count(share);
    bool more = true;
    for (unsigned slot = 0; slot < count && more; slot++) {
        if (look_at(share, file, slot) != FOUND_LIVE) {
            continue;
        }
        const dv_page_slot *info = &share->state->slot[slot];
        dv_process process = {
            .pid = (pid_t)load32(&info->pid),
            .host_pid = (pid_t)load32(&info->host_pid),
            .self = (int)slot == own_slot(share),
        };
        for (unsigned i = 0; i < share->device_count; i++) {
            process.used[i] = held_bytes(journal_read(&share->gpu[i], slot));
        }
        more = visit(&process, arg);
    }
    if (file >= 0) {
        close(file);
    }
    errno = saved;
}
