#include "cuda/time/gate.h"

#include "cuda/time/launch.h"
#include "cuda/time/now.h"
#include "share/pulse.h"

#define NAP_NS 1000000u    /* longest nap, so that a change of the budget is seen in time */
#define YIELD_NS 200000u   /* longest nap while giving way to a neighbour */
#define SHORTEST_NS 20000u /* shortest nap */
#define SAVE_NS                                                                                    \
    400000u /* waits so much longer than the debt needs, to run fewer and longer stretches of work
    \ */
#define AWAIT_NS 100000u /* nap while the first sample of a kernel is awaited */

/* Work that makes no progress for so long may wait for something that comes after this launch, such
 * as a write by the host. The limit on unfinished work is then ignored for a while. */
#define STUCK_NS 1000000000u
#define STUCK_FOR_NS 10000000000u

#define BEAT_NEAR_NS 100000u  /* a pulse that ends within this of the work is prolonged */
#define BEAT_GRACE_NS 600000u /* a pulse goes on so long after the work */
#define REST_NS                                                                                    \
    200000u /* kept after the last work, because the next launch often follows at once */

static uint64_t clip(uint64_t ns, uint64_t least, uint64_t most) {
    return ns < least ? least : ns > most ? most : ns;
}

void gate_charge(struct flight *flight, uint64_t ns, uint64_t now) {
    struct gpu *gpu = flight->gpu;
    int32_t launches;
    int64_t owed = flight_settle(flight, &launches) + (int64_t)ns;
    launches += ns > 0;
    uint32_t count = launches > 0 ? (uint32_t)launches : 0;
    if (owed > 0) {
        dv_time_charge(gpu->share, gpu->number, now, (uint64_t)owed, count);
    } else if (owed < 0) {
        dv_time_return(gpu->share, gpu->number, (uint64_t)-owed, 0);
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

/* Launches of an unknown kernel are charged next to nothing and could pile up seconds of work. So
 * only the first few go ahead, and the others wait until one of those is done. */
static bool is_awaited(const struct launch *launch) {
    struct flight *flight = launch->flight;
    if (!cost_awaited(launch->cost)) {
        return false;
    }
    flight_read(flight, 0);
    return cost_awaited(launch->cost) && __atomic_load_n(&flight->count, __ATOMIC_RELAXED) > 0;
}

/* How long the launch has to wait at least; 0: it may go. It has waited since `began`. */
static uint64_t must_wait(const struct launch *launch, uint64_t began) {
    uint64_t now = launch->now;
    struct flight *flight = launch->flight;
    struct gpu *gpu = flight->gpu;
    uint32_t flags = __atomic_load_n(launch_flags[gpu->number], __ATOMIC_RELAXED);
    if (flags & DV_PAGE_BUDGET_LIMITED) {
        if (is_awaited(launch)) {
            return AWAIT_NS;
        }
        if (dv_time_job_balance(gpu->share, gpu->number, now) < 0) {
            uint64_t debt = dv_time_job_deficit_ns(gpu->share, gpu->number, now);
            return clip(debt + SAVE_NS, SHORTEST_NS, NAP_NS);
        }
        uint64_t beyond = too_deep(flight, began, now);
        if (beyond > 0) {
            return clip(beyond, SHORTEST_NS, NAP_NS);
        }
    }
    if (flags & DV_PAGE_BUDGET_YIELD) {
        uint64_t until = dv_pulse_beating(gpu->share, gpu->number, now);
        if (until > now) {
            return clip(until - now, SHORTEST_NS, YIELD_NS);
        }
    }
    return 0;
}

static void wait(struct launch *launch, uint64_t first) {
    struct flight *flight = launch->flight;
    struct gpu *gpu = flight->gpu;
    uint64_t began = launch->now, nap = first;
    flights_break(flight->stamps, NULL);
    flight_break(flight);
    while (nap > 0) {
        dv_time_wanted(gpu->share, gpu->number, launch->now);
        if (launch->now - began >= DV_TIME_WAIT_NS) {
            dv_time_overdrawn(gpu->share, gpu->number);
            if (cost_awaited(launch->cost)) {
                cost_learn(launch->cost, launch->ns, false);
            }
            break;
        }
        dv_time_nap(nap);
        flights_read(flight->stamps);
        launch->now = now_ns();
        nap = must_wait(launch, began);
    }
    launch->waited = true;
    dv_time_waited(gpu->share, gpu->number, launch->now - began);
}

void gate_wait(struct launch *launch) {
    gate_charge(launch->flight, 0, launch->now);
    uint64_t nap = must_wait(launch, launch->now);
    if (nap > 0) {
        wait(launch, nap);
    }
    if (launch->charge > 0) {
        gate_charge(launch->flight, launch->charge, launch->now);
    }
    __atomic_store_n(&launch->flight->unseen, 0, __ATOMIC_RELAXED);
    launch->taken = true;
}

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
