/* Waits for room. dv_reserve comes here when its lock-free attempt has failed.
 *
 * An amount that does not fit beside what is used is refused, after all dead processes were reaped.
 * An amount that does not fit only because of reservations of driver calls under way waits for
 * those calls, or for a new figure of the agent's (overhead.c). A stream of small reservations must not keep a large one waiting, so one waiter at a
 * time has its turn: others leave room for it. A turn ends by itself after TURN_MS, so a waiter
 * that is stopped or dies does not block others for long. */
#include "share/state.h"

#define TURN_MS 100u
#define LOOK_AGAIN_NS                                                                              \
    10000000u /* longest sleep, because a process may die without waking others                   
    \ */
#define TURN_TIME_MASK (UINT64_MAX >> DV_PAGE_SLOT_BITS)

static uint64_t now_ms(void) {
    return (os_now_ns() / 1000000u) & TURN_TIME_MASK;
}

static uint64_t pack_turn(unsigned slot, uint64_t end_ms) {
    return (end_ms & TURN_TIME_MASK) << DV_PAGE_SLOT_BITS | (slot + 1);
}

/* Units that have to be left for a neighbour whose turn it is. A turn that would end later than the
 * rules allow, perhaps by another clock, counts as over. */
uint64_t turn_of_others(dv_share *share, dv_page_gpu *gpu) {
    uint64_t turn = load64(&gpu->turn);
    uint64_t holder = turn & ((1u << DV_PAGE_SLOT_BITS) - 1);
    if (turn == 0 || holder == (uint64_t)own_slot(share) + 1) {
        return 0;
    }
    uint64_t left = ((turn >> DV_PAGE_SLOT_BITS) - now_ms()) & TURN_TIME_MASK;
    if (left == 0 || left > TURN_MS) {
        swap64(&gpu->turn, turn, 0);
        return 0;
    }
    return load32(&gpu->turn_units);
}

static void take_turn(dv_share *share, dv_page_gpu *gpu, uint32_t units, uint64_t *turn) {
    uint64_t mine = pack_turn((unsigned)own_slot(share), now_ms() + TURN_MS);
    if (load64(&gpu->turn) == 0 && swap64(&gpu->turn, 0, mine)) {
        store32(&gpu->turn_units, units);
        *turn = mine;
    }
}

static void end_turn(dv_page_gpu *gpu, uint64_t turn) {
    if (turn != 0 && swap64(&gpu->turn, turn, 0)) {
        ledger_wake(gpu);
    }
}

/* True if the refusal is final. All processes that were counted were alive, because none is dead
 * now and none was reaped since. */
static bool final(const dv_share *share, ledger_result result, const dv_sweep *sweep,
                  uint32_t reaps) {
    return result == LEDGER_FULL && sweep->reaped == 0 && sweep->unfinished == 0 &&
           load32(&share->state->reaps) == reaps;
}

dv_status wait_for_room(dv_share *share, unsigned device, uint32_t units) {
    dv_page_gpu *gpu = &share->gpu[device];
    uint64_t end = os_now_ns() + DV_WAIT_NS, next_sweep = 0, turn = 0;
    overhead_since since = overhead_now(share, device);
    dv_status status = DV_NO_MEMORY;
    for (;;) {
        uint32_t wake = load32(&gpu->wake), reaps = load32(&share->state->reaps);
        __atomic_store_n(&gpu->waiting, 1, __ATOMIC_SEQ_CST);
        ledger_result result = reserve_once(share, device, units, &since);
        uint64_t now = os_now_ns();
        if (result == LEDGER_DONE || result == LEDGER_BROKEN) {
            status = result == LEDGER_DONE ? DV_OK : DV_BUSY;
            break;
        }
        dv_sweep sweep = {.reaped = 0};
        if (result == LEDGER_FULL || now >= next_sweep) {
            sweep = reap_all(share, NULL);
            next_sweep = now + LOOK_AGAIN_NS;
        }
        if (since.waited || final(share, result, &sweep, reaps)) {
            break;
        }
        if (now >= end) {
            since.waited = true; /* once more, without what is not certain */
            continue;
        }
        if (sweep.reaped > 0 || load32(&share->state->reaps) != reaps) {
            since = overhead_now(share, device); /* the agent may have counted the dead */
            continue;
        }
        if (turn == 0 || load64(&gpu->turn) != turn) {
            take_turn(share, gpu, units, &turn);
        }
        os_futex_wait(&gpu->wake, wake, LOOK_AGAIN_NS);
    }
    end_turn(gpu, turn);
    return status;
}
