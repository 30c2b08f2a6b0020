#include "cuda/time/gate.h"

#include "cuda/attach.h"
#include "cuda/memory/overhead.h"
#include "cuda/time/capture.h"
#include "cuda/time/launch.h"
#include "cuda/time/now.h"
#include "cuda/time/precedence.h"
#include "cuda/time/target.h"
#include "cuda/time/turns.h"
#include "share/pulse.h"

#define NAP_NS 1000000u    /* longest nap, so that a change of the budget is seen in time */
#define YIELD_NS 200000u   /* longest nap while giving way to a neighbour */
#define SHORTEST_NS 20000u /* shortest nap */
#define SAVE_NS                                                                                    \
    400000u /* waits so much longer than the debt needs, to run fewer and longer stretches of work
    \ */
#define AWAIT_NS 100000u /* nap while the first sample of a kernel is awaited */
#define AFTER_NS 100000u /* nap while a launch of higher priority waits */

/* Work that makes no progress for so long may wait for something that comes after this launch, such
 * as a write by the host. The limit on unfinished work is then ignored for a while. */
#define STUCK_NS 1000000000u
#define STUCK_FOR_NS 10000000000u

#define ENTER_DEBT_NS 1000000000 /* no context is made while more is owed */
#define ENTER_NAP_NS 5000000u

#define BEAT_NEAR_NS 100000u  /* a pulse that ends within this of the work is prolonged */
#define BEAT_GRACE_NS 600000u /* a pulse goes on so long after the work */
#define REST_NS                                                                                    \
    200000u /* kept after the last work, because the next launch often follows at once */

static uint64_t clip(uint64_t ns, uint64_t least, uint64_t most) {
    return ns < least ? least : ns > most ? most : ns;
}

/* A share may be suspended while something waits for its budget. Then the driver would block the next
 * look, and nobody would learn that the program goes on. Returns for how long that was waited for. Swap
 * shares are never suspended, and there the wait is no work: others may have the GPU meanwhile. */
static uint64_t await_resumption(const dv_share *share) {
    return dv_share_swap(share) ? 0 : turns_pause();
}

void gate_charge(struct flight *flight, uint64_t ns, uint64_t now) {
    struct gpu *gpu = flight->gpu;
    int32_t launches;
    int64_t owed = flight_settle(flight, &launches) + (int64_t)ns;
    launches += ns > 0;
    /* New launches may come with a price that fell by more than they cost. */
    if (owed > 0 || launches > 0) {
        dv_time_charge(gpu->share, gpu->number, now, owed > 0 ? (uint64_t)owed : 0,
                       launches > 0 ? (uint32_t)launches : 0);
    }
    if (owed < 0 || launches < 0) {
        dv_time_return(gpu->share, gpu->number, owed < 0 ? (uint64_t)-owed : 0,
                       launches < 0 ? (uint32_t)-launches : 0);
    }
}

/* By how much this process's unfinished work exceeds the depth of its budget, after a look at what
 * is done. The launch has waited since `began`. */
static uint64_t too_deep(struct flight *flight, uint64_t began, uint64_t now) {
    struct gpu *gpu = flight->gpu;
    if (now < __atomic_load_n(&gpu->stuck_until, __ATOMIC_RELAXED)) {
        return 0;
    }
    uint64_t depth = dv_time_depth(gpu->share, gpu->number);
    uint64_t work = flights_unfinished(gpu, now);
    if (work > depth) {
        flights_break(flight->stamps, NULL);
        flights_read(flight->stamps);
        work = flights_unfinished(gpu, now);
    }
    if (work <= depth) {
        return 0;
    }
    if (now - began > STUCK_NS) {
        __atomic_store_n(&gpu->stuck_until, now + STUCK_FOR_NS, __ATOMIC_RELAXED);
        return 0;
    }
    return work - depth;
}

static uint64_t debt_nap(const struct gpu *gpu, uint64_t now) {
    uint64_t debt = dv_time_job_deficit_ns(gpu->share, gpu->number, now);
    return clip(debt + SAVE_NS, SHORTEST_NS, NAP_NS);
}

/* Takes the share's turn, after a look at what is done of this process. */
static bool take_turn(struct launch *launch) {
    struct gpu *gpu = launch->flight->gpu;
    launch->turn = dv_time_turn(gpu->share, gpu->number, launch->now);
    if (launch->turn == 0) {
        flights_read_all(gpu);
        if (cost_samples(launch->cost) > 0) {
            return false; /* it was the same work that was measured */
        }
        launch->turn = dv_time_turn(gpu->share, gpu->number, launch->now);
    }
    launch->alone = launch->alone || launch->turn != 0;
    return launch->turn != 0;
}

void gate_turned(const struct gpu *gpu, uint64_t turn) {
    dv_time_turn_end(gpu->share, gpu->number, turn);
}

/* Charges the launch, unless it has to wait for the bucket or its turn. Returns for how long, 0 if
 * it is charged. */
static uint64_t admit(struct launch *launch, uint32_t flags) {
    struct gpu *gpu = launch->flight->gpu;
    uint64_t now = launch->now;
    bool turns = launch->unknown && (flags & DV_PAGE_BUDGET_CAPPED) != 0;
    if (!turns && dv_time_turn_taken(gpu->share, gpu->number, now)) {
        flights_read_all(gpu);
        return AWAIT_NS;
    }
    if (!turns) {
        return dv_time_admit(gpu->share, gpu->number, now, launch->charge) ? 0 : debt_nap(gpu, now);
    }
    if (dv_time_job_balance(gpu->share, gpu->number, now) < 0) {
        return debt_nap(gpu, now);
    }
    if (!take_turn(launch)) {
        return AWAIT_NS;
    }
    /* The last turn may have ended since, and been charged. */
    if (!dv_time_admit(gpu->share, gpu->number, now, launch->charge)) {
        gate_turned(gpu, launch->turn);
        launch->turn = 0;
        return debt_nap(gpu, now);
    }
    return 0;
}

/* How long the launch has to wait at least; 0: it may go, and is charged. It has waited since
 * `began`. */
static uint64_t must_wait(struct launch *launch, uint64_t began) {
    uint64_t now = launch->now;
    launch->yields = false;
    struct flight *flight = launch->flight;
    struct gpu *gpu = flight->gpu;
    uint32_t flags = __atomic_load_n(launch_flags[gpu->number], __ATOMIC_RELAXED);
    /* Those of higher priority may never end, and wait for what this launch does. */
    if (now - began < DV_TIME_WAIT_NS && precedence_yields(gpu, flight->stream, now)) {
        return AFTER_NS;
    }
    if (flags & DV_PAGE_BUDGET_LIMITED) {
        uint64_t beyond = too_deep(flight, began, now);
        if (beyond > 0) {
            return clip(beyond, SHORTEST_NS, NAP_NS);
        }
    }
    if (flags & DV_PAGE_BUDGET_YIELD) {
        uint64_t until = dv_pulse_beating(gpu->share, gpu->number, now);
        if (until > now) {
            launch->yields = true;
            return clip(until - now, SHORTEST_NS, YIELD_NS);
        }
    }
    if (now != began) { /* it may have become known, or its price another */
        launch_price(launch, flags);
        launch->unknown = launch->unknown && cost_samples(launch->cost) == 0;
    }
    return (flags & DV_PAGE_BUDGET_LIMITED) != 0 ? admit(launch, flags) : 0;
}

/* Work under way may wait for this launch, so it goes although it should wait. */
static void escape(struct launch *launch) {
    const struct gpu *gpu = launch->flight->gpu;
    uint32_t flags = __atomic_load_n(launch_flags[gpu->number], __ATOMIC_RELAXED);
    if (launch->unknown && (flags & DV_PAGE_BUDGET_CAPPED) != 0) {
        launch->turn = dv_time_turn(gpu->share, gpu->number, launch->now);
        launch->alone = launch->alone || launch->turn != 0;
    }
    if (launch->charge > 0) {
        gate_charge(launch->flight, launch->charge, launch->now);
    }
}

/* Looks at a launch again that has waited since `began`. Returns for how long it has to go on
 * waiting; 0: no longer, and it has a flight if it is charged. */
static uint64_t look(struct launch *launch, const struct target *target, uint64_t began,
                     CUresult *answer) {
    struct flight *flight = launch->flight;
    uint64_t nap = 0;
    if (!flight_pin_still(flight, target->ends)) {
        *answer = target_answer(target);
        launch->flight = NULL;
        return 0;
    }
    flights_read(flight->stamps);
    launch->now = now_ns();
    if (capture_has(target->stream)) {
        launch->flight = NULL;
    } else {
        nap = must_wait(launch, began);
    }
    flight_unpin(flight);
    return nap;
}

static CUresult wait(struct launch *launch, uint64_t first) {
    struct flight *flight = launch->flight;
    struct gpu *gpu = flight->gpu;
    struct target target = target_of(flight);
    CUresult answer = CUDA_SUCCESS;
    uint64_t began = launch->now, nap = first;
    struct precedence order = {.priority = precedence_of(flight->stream)};
    flights_break(flight->stamps, NULL);
    flight_break(flight);
    while (nap > 0) {
        dv_time_wanted(gpu->share, gpu->number, launch->now);
        if (launch->now - began >= DV_TIME_WAIT_NS &&
            dv_time_escape(gpu->share, gpu->number, launch->now, began,
                           flights_oldest() <= launch->now - DV_TIME_WAIT_NS)) {
            escape(launch);
            break;
        }
        precedence_note(gpu, &order, launch->now, launch->now + nap);
        uint64_t from = launch->now;
        bool yields = launch->yields;
        dv_time_nap(nap);
        uint64_t away = await_resumption(gpu->share); /* no wait for the budget */
        began += away;
        nap = look(launch, &target, began, &answer);
        dv_time_held_back(gpu->share, gpu->number, from + away, launch->now, yields);
    }
    precedence_end(&order);
    launch->waited = true;
    dv_time_waited(gpu->share, gpu->number, launch->now - began);
    return answer;
}

CUresult gate_wait(struct launch *launch) {
    CUresult answer = CUDA_SUCCESS;
    gate_charge(launch->flight, 0, launch->now);
    uint64_t nap = must_wait(launch, launch->now);
    if (nap > 0) {
        answer = wait(launch, nap);
    }
    if (launch->flight != NULL) {
        __atomic_store_n(&launch->flight->unseen, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&launch->flight->records, 0, __ATOMIC_RELAXED);
        launch->taken = true;
    }
    return answer;
}

/* Waits, before a context is made on a GPU of the share, while the share's debt is larger than
 * launches leave it. Then processes use the GPU past this library, which could not wait for the
 * bucket, and more of them must not begin. */
static void gate_enter(unsigned number) {
    dv_share *share = attached_share();
    if (share == NULL || number >= dv_share_device_count(share)) {
        return;
    }
    for (uint64_t now = now_ns(); dv_time_balance(share, number, now) < -ENTER_DEBT_NS;
         now = now_ns()) {
        dv_time_wanted(share, number, now);
        dv_time_nap(ENTER_NAP_NS);
        dv_time_held_back(share, number, now, now_ns(), false);
        await_resumption(share);
    }
}

ON(context_wanted, gate_enter);

void gate_beat(const struct launch *launch) {
    const struct flight *flight = launch->flight;
    struct gpu *gpu = flight->gpu;
    uint64_t begin = __atomic_load_n(&flight->expected, __ATOMIC_RELAXED);
    begin = begin > launch->now ? begin : launch->now;
    uint64_t told = __atomic_load_n(&gpu->pulse, __ATOMIC_RELAXED);
    if (told >= begin + launch->ns + BEAT_NEAR_NS) {
        return;
    }
    uint64_t work = flights_unfinished(gpu, launch->now) + launch->ns;
    uint64_t until = launch->now + clip(work + BEAT_GRACE_NS, 0, DV_PULSE_AHEAD_NS);
    dv_pulse_until(gpu->share, gpu->number, launch->now, until);
    __atomic_store_n(&gpu->pulse, until, __ATOMIC_RELAXED);
}

void gate_rest(struct gpu *gpu) {
    uint64_t told = __atomic_load_n(&gpu->pulse, __ATOMIC_RELAXED);
    if (told == 0) {
        return;
    }
    uint64_t now = now_ns();
    if (told > now + REST_NS && flights_unfinished(gpu, now) == 0) {
        dv_pulse_clear(gpu->share, gpu->number);
        dv_pulse_until(gpu->share, gpu->number, now, now + REST_NS);
        __atomic_store_n(&gpu->pulse, now + REST_NS, __ATOMIC_RELAXED);
    }
}
