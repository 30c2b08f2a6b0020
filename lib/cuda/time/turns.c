#include "cuda/time/turns.h"

#include "cuda/attach.h"
#include "cuda/fork.h"
#include "cuda/memory/overhead.h"
#include "cuda/memory/reservation.h"
#include "cuda/time/capture.h"
#include "cuda/time/now.h"
#include "cuda/time/target.h"
#include "libc/cancel.h"

#define NAP_NS 200000u          /* first look at a closed gate again */
#define LONGEST_NAP_NS 4000000u /* nobody can wake a waiter: the page is read-only here */

static const uint64_t no_order = DV_PAGE_TURN_OPEN;
const uint64_t *turns_words[DV_PAGE_DEVICES] = {&no_order};
uint32_t turns_served, turns_passed;

static void turns_attached(const dv_share *share) {
    for (unsigned i = 0; i < DV_PAGE_DEVICES; i++) {
        __atomic_store_n(&turns_words[i], dv_turn_word(share, i), __ATOMIC_RELEASE);
    }
}
ON(attached, turns_attached);

/* The threads that wait, for each GPU. */
static lock waiting;
static uint32_t waiters[DV_PAGE_DEVICES];

static void begin_wait(dv_share *share, unsigned number, uint64_t now) {
    lock_take(&waiting);
    if (waiters[number]++ == 0) {
        dv_present_waits(share, number, now);
    }
    lock_give(&waiting);
}

static void end_wait(dv_share *share, unsigned number) {
    lock_take(&waiting);
    if (--waiters[number] == 0) {
        dv_present_waits(share, number, 0);
    }
    lock_give(&waiting);
}

static uint64_t longer(uint64_t nap) {
    return 2 * nap < LONGEST_NAP_NS ? 2 * nap : LONGEST_NAP_NS;
}

/* Whether the launch may no longer go on as it is: its stream has ended, or is captured. */
static bool is_stale(struct flight *flight, const struct target *target, CUresult *answer) {
    if (!flight_pin_still(flight, target->ends)) {
        *answer = target_answer(target);
        return true;
    }
    bool captured = capture_has(target->stream);
    flight_unpin(flight);
    return captured;
}

static __attribute__((noinline, cold)) CUresult wait(struct flight **flight, uint64_t now) {
    UNCANCELLED; /* or it would be told to wait for ever */
    struct gpu *gpu = (*flight)->gpu;
    struct target target = target_of(*flight);
    CUresult answer = CUDA_SUCCESS;
    begin_wait(gpu->share, gpu->number, now); /* first, because the driver may block what follows */
    /* What was measured must not end with this wait. */
    flights_break((*flight)->stamps, NULL);
    flight_break(*flight);
    for (uint64_t nap = NAP_NS; dv_turn_closed(gpu->share, gpu->number, now); nap = longer(nap)) {
        uint64_t from = now;
        dv_time_nap(nap);
        now = now_ns();
        dv_residence_held(gpu->share, gpu->number, from, now);
        dv_present_called(gpu->share, gpu->number, now);
        if (is_stale(*flight, &target, &answer)) {
            *flight = NULL;
            break;
        }
    }
    end_wait(gpu->share, gpu->number);
    return answer;
}

CUresult turns_wait(struct flight **flight, bool *late) {
    const struct gpu *gpu = (*flight)->gpu;
    if (turns_open(gpu->number)) {
        return CUDA_SUCCESS;
    }
    uint64_t now = now_ns();
    if (!dv_turn_closed(gpu->share, gpu->number, now)) {
        return CUDA_SUCCESS;
    }
    *late = true;
    return wait(flight, now);
}

/* The thread is inside, and the order closes the gate. */
CUresult turns_enter_late(struct flight **flight, bool *late) {
    const struct gpu *gpu = (*flight)->gpu;
    CUresult answer = CUDA_SUCCESS;
    while (*flight != NULL && dv_turn_closed(gpu->share, gpu->number, now_ns())) {
        turns_leave();
        answer = turns_wait(flight, late);
        if (*flight != NULL) {
            __atomic_exchange_n(&notes_here->inside, 1, __ATOMIC_SEQ_CST);
        }
    }
    return answer;
}

void turns_called(const struct gpu *gpu) {
    if (__builtin_expect(__atomic_load_n(&turns_served, __ATOMIC_RELAXED) == 0, 0) &&
        dv_share_swap(gpu->share)) {
        TELL(turns_unserved, (gpu->share));
    }
    dv_present_called(gpu->share, gpu->number, now_about(notes_here));
    if (__atomic_load_n(&turns_passed, __ATOMIC_RELAXED) == 0) {
        __atomic_store_n(&turns_passed, 1, __ATOMIC_RELAXED);
    }
}

static bool is_suspended(const dv_share *share, uint64_t now) {
    return dv_turn_state(dv_turn_order(share, 0)) == DV_PAGE_TURN_SUSPENDED &&
           dv_turn_closed(share, 0, now);
}

/* All GPUs of a share have the same order, so the first one tells. */
uint64_t turns_pause(void) {
    dv_share *share = attached_share();
    if (share == NULL ||
        (__atomic_load_n(launch_flags[0], __ATOMIC_RELAXED) & DV_PAGE_BUDGET_TURNS) == 0) {
        return 0;
    }
    struct notes *notes = notes_own();
    uint64_t now = notes != NULL ? now_about(notes) : now_ns();
    dv_time_worker(share, 0); /* takes the slot in which is told */
    dv_present_called(share, 0, now);
    if (!is_suspended(share, now)) {
        return 0;
    }
    UNCANCELLED;
    now = now_ns();
    uint64_t began = now;
    begin_wait(share, 0, now);
    for (uint64_t nap = NAP_NS; is_suspended(share, now); nap = longer(nap)) {
        uint64_t from = now;
        dv_time_nap(nap);
        now = now_ns();
        dv_residence_held(share, 0, from, now);
    }
    end_wait(share, 0);
    return now - began;
}

static void turns_memory_wanted(void) {
    turns_pause();
}
ON(memory_wanted, turns_memory_wanted);

static void turns_context_wanted(unsigned device) {
    (void)device;
    turns_pause();
}
ON(context_wanted, turns_context_wanted);

static void turns_forked(void) {
    waiting = (lock){0};
    for (unsigned i = 0; i < DV_PAGE_DEVICES; i++) {
        waiters[i] = 0;
    }
    turns_served = turns_passed = 0;
}
ON(forked, turns_forked);
