#include "cuda/time/launch.h"

#include "cuda/attach.h"
#include "cuda/time/capture.h"
#include "cuda/time/gate.h"
#include "cuda/time/kernel.h"
#include "cuda/time/now.h"

#define EVENT_NS 1000u /* of an event's record, until it is learned */

static const uint32_t no_flags, always = 1;
const uint32_t *launch_flags[DV_PAGE_DEVICES] = {&no_flags};
unsigned launch_gpus = 1;
const uint32_t *launch_watch = &no_flags;

static void launch_attached(const dv_share *share) {
    unsigned count = dv_share_device_count(share);
    for (unsigned i = 0; i < count; i++) {
        __atomic_store_n(&launch_flags[i], dv_time_flags_word(share, i), __ATOMIC_RELEASE);
    }
    __atomic_store_n(&launch_gpus, count, __ATOMIC_RELEASE);
    __atomic_store_n(&launch_watch, count == 1 ? launch_flags[0] : &always, __ATOMIC_RELEASE);
}
ON(attached, launch_attached);

bool launch_any(void) {
    uint32_t flags = 0;
    unsigned gpus = __atomic_load_n(&launch_gpus, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < gpus; i++) {
        flags |= __atomic_load_n(launch_flags[i], __ATOMIC_RELAXED);
    }
    return flags != 0;
}

/* Whether to look at the budget, which is after each portion of work. */
static bool must_look(const struct launch *launch, uint32_t flags) {
    const struct flight *flight = launch->flight;
    uint64_t unseen = launch->records ? __atomic_load_n(&flight->records, __ATOMIC_RELAXED)
                                      : __atomic_load_n(&flight->unseen, __ATOMIC_RELAXED);
    uint64_t more = launch->ns > launch->charge ? launch->ns : launch->charge;
    return (flags & (DV_PAGE_BUDGET_LIMITED | DV_PAGE_BUDGET_YIELD)) != 0 &&
           unseen + more > (launch->records ? GATE_RECORDS_NS : GATE_PORTION_NS);
}

/* The first launch of this work by the process: loads its code, and asks what others learned. */
static void introduce(struct launch *launch, struct work work) {
    const struct gpu *gpu = launch->flight->gpu;
    struct kernel kernel = {.loaded = true};
    uint64_t digest = cost_digest(0, work.shape);
    if (work.of != NULL) {
        kernel = kernel_load(work.of);
        digest = kernel.digest != 0 ? cost_digest(kernel.digest, work.shape) : COST_NAMELESS;
    }
    __atomic_store_n(&launch->cost->digest, digest, __ATOMIC_RELAXED);
    launch->alone = launch->loads = !kernel.loaded;
    uint64_t learned =
        digest != COST_NAMELESS ? dv_time_learned(gpu->share, gpu->number, digest) : 0;
    if (learned > 0) {
        cost_adopt(launch->cost, learned);
    }
}

/* Nothing was measured of this work yet. Returns whether the launch has to look at the budget,
 * because the share is capped and nobody knows the cost. */
static __attribute__((noinline, cold)) bool is_unknown(struct launch *launch, struct work work,
                                                       uint32_t flags) {
    launch->loads = false;
    if (__atomic_load_n(&launch->cost->digest, __ATOMIC_RELAXED) == 0) {
        introduce(launch, work);
    }
    launch->unknown = work.of != NULL && cost_samples(launch->cost) == 0;
    return launch->unknown && (flags & DV_PAGE_BUDGET_CAPPED) != 0;
}

enum kind { WORK, RECORD, RECORD_APART };

static CUresult begin(struct launch *launch, CUstream stream, struct work work, uint64_t prior,
                      enum kind kind) {
    struct flight *flight = capture_has(stream) ? NULL : flight_of(stream);
    launch->flight = NULL;
    if (flight == NULL) {
        return CUDA_SUCCESS;
    }
    const struct gpu *gpu = flight->gpu;
    uint32_t flags = __atomic_load_n(launch_flags[gpu->number], __ATOMIC_RELAXED);
    if (flags == 0) {
        return CUDA_SUCCESS;
    }
    launch->flight = flight;
    launch->cost = cost_find(cost_key(work), prior);
    launch->taken = launch->waited = launch->unknown = launch->alone = false;
    launch->turn = 0;
    launch->records = kind != WORK;
    launch->apart = kind == RECORD_APART;
    bool unknown =
        __builtin_expect(cost_samples(launch->cost) == 0, 0) && is_unknown(launch, work, flags);
    struct notes *notes = notes_here;
    CUresult gone = CUDA_SUCCESS;
    launch->now = now_about(notes);
    notes->last = flight;
    launch_price(launch, flags);
    if (unknown || must_look(launch, flags)) {
        CUresult answer = gate_wait(launch);
        if (launch->flight == NULL) {
            return answer;
        }
        if (work.of != NULL && kernel_gone(work.of)) {
            gone = CUDA_ERROR_INVALID_HANDLE;
        }
    }
    if (flags & DV_PAGE_BUDGET_BEAT) {
        gate_beat(launch);
    }
    __atomic_store_n(&notes->launching, flight, __ATOMIC_RELAXED);
    flight_give(flight, launch);
    return gone;
}

CUresult launch_begin(struct launch *launch, CUstream stream, struct work work, uint64_t prior) {
    return begin(launch, stream, work, prior, WORK);
}

CUresult launch_records(struct launch *launch, CUstream stream) {
    return begin(launch, stream, cost_moved(COST_EVENT, 0), EVENT_NS, RECORD);
}

CUresult launch_records_apart(struct launch *launch) {
    launch_follows(CU_STREAM_LEGACY);
    return begin(launch, CU_STREAM_LEGACY, cost_moved(COST_EVENT, 0), EVENT_NS, RECORD_APART);
}

void launch_end(struct launch *launch, CUresult result) {
    if (launch->flight != NULL) {
        __atomic_store_n(&notes_here->launching, NULL, __ATOMIC_RELEASE);
        if (__builtin_expect(result != CUDA_SUCCESS || launch->ends_batch, 0)) {
            flight_given(launch->flight, launch, result);
        }
    }
}

void launch_follows(CUstream stream) {
    struct flight *flight = flight_find(stream);
    if (flight != NULL) {
        flight_break(flight);
    }
}

void launch_waits(struct wait *wait, CUstream stream) {
    wait->flight = flight_find(stream);
    if (wait->flight != NULL) {
        flight_break(wait->flight);
        wait->given = flight_given_so_far(wait->flight);
    }
}

void launch_waited(const struct wait *wait, CUresult result) {
    if (wait->flight != NULL && result == CUDA_SUCCESS) {
        flight_finish(wait->flight, wait->given);
    }
}

uint64_t launch_blocks(void) {
    struct notes *notes = notes_own();
    return notes != NULL ? now_about(notes) : now_ns();
}

void launch_blocked(uint64_t since, bool copies) {
    dv_share *share = attached_share();
    struct home home = {.device = 0};
    if (share == NULL || (__atomic_load_n(&launch_gpus, __ATOMIC_RELAXED) != 1 &&
                          context_current(&home) != CUDA_SUCCESS)) {
        return;
    }
    dv_time_blocked(share, home.device, copies, since, launch_blocks());
}

/* The program may have destroyed that stream, and its flight may be of another one by now: reading
 * that is no loss. */
void launch_looked(void) {
    struct flight *flight = notes_here != NULL ? notes_here->last : NULL;
    if (flight != NULL && flight_pin(flight)) {
        flight_read(flight);
        gate_rest(flight->gpu);
        flight_unpin(flight);
    }
}
