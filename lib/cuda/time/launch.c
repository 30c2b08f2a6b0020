#include "cuda/time/launch.h"

#include "cuda/attach.h"
#include "cuda/time/capture.h"
#include "cuda/time/gate.h"
#include "cuda/time/kernel.h"
#include "cuda/time/now.h"
#include "cuda/time/turns.h"

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

/* What launches go through is inlined for those of kernels in a share without turns, and again for
 * all others: so they pay no call and no look at what kind of call it is. */
#define OFTEN static inline __attribute__((always_inline))

/* Whether to look at the budget, which is after each portion of work. */
OFTEN bool must_look(const struct launch *launch, const struct flight *flight, uint32_t flags,
                     bool records) {
    uint64_t unseen = records ? __atomic_load_n(&flight->records, __ATOMIC_RELAXED)
                              : __atomic_load_n(&flight->unseen, __ATOMIC_RELAXED);
    uint64_t more = launch->ns > launch->charge ? launch->ns : launch->charge;
    return (flags & (DV_PAGE_BUDGET_LIMITED | DV_PAGE_BUDGET_YIELD)) != 0 &&
           unseen + more > (records ? GATE_RECORDS_NS : GATE_PORTION_NS);
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

/* What a call does that is counted here. */
enum kind { WORK, WORK_JOINED, RECORD, RECORD_APART, PASSAGE };

/* The flags for which launches are charged, wait and are measured. */
#define MEASURED                                                                                   \
    (DV_PAGE_BUDGET_LIMITED | DV_PAGE_BUDGET_BEAT | DV_PAGE_BUDGET_YIELD | DV_PAGE_BUDGET_CAPPED)

/* Charges a launch, which may wait. False if it must not be given; the answer says why. */
OFTEN bool charge(struct launch *launch, struct flight *flight, struct work work, uint64_t prior,
                  uint32_t flags, enum kind kind, CUresult *answer) {
    struct notes *notes = notes_here;
    launch->flight = flight;
    launch->cost = cost_find(cost_key(work), prior);
    launch->taken = launch->waited = launch->unknown = launch->alone = false;
    launch->turn = 0;
    launch->records = kind == RECORD || kind == RECORD_APART;
    launch->apart = kind == RECORD_APART;
    bool unknown =
        __builtin_expect(cost_samples(launch->cost) == 0, 0) && is_unknown(launch, work, flags);
    launch->now = now_about(notes);
    notes->last = flight;
    launch_price(launch, flags);
    if (!unknown && !must_look(launch, flight, flags, kind == RECORD || kind == RECORD_APART)) {
        return true;
    }
    *answer = gate_wait(launch);
    if (launch->flight != NULL && work.of != NULL && kernel_gone(work.of)) {
        *answer = CUDA_ERROR_INVALID_HANDLE;
    }
    return launch->flight != NULL;
}

/* The launch is given to the driver next, or its answer is known already. */
OFTEN void give(struct launch *launch, struct flight *flight, uint32_t flags) {
    if (flags & DV_PAGE_BUDGET_BEAT) {
        gate_beat(launch);
    }
    __atomic_store_n(&notes_here->launching, flight, __ATOMIC_RELAXED);
    flight_give(flight, launch);
}

/* In a share that has turns. It waits for its turn before it is charged, so that what is charged
 * goes at once, and looks at the order again when nothing else can hold it up. */
static __attribute__((noinline)) CUresult begin_turn(struct launch *launch, struct flight *flight,
                                                     struct work work, uint64_t prior,
                                                     uint32_t flags, enum kind kind) {
    bool counts = kind != PASSAGE && (flags & MEASURED) != 0;
    bool waits = kind == WORK || kind == PASSAGE, late = false;
    CUresult answer = CUDA_SUCCESS;
    if (kind == RECORD || kind == RECORD_APART) {
        turns_pause();
    } else {
        turns_called(flight->gpu);
        launch->turns = TURNS_USES;
    }
    if (waits) {
        answer = turns_wait(&flight, &late);
    }
    if (flight != NULL && counts && !charge(launch, flight, work, prior, flags, kind, &answer)) {
        flight = NULL;
    }
    if (flight != NULL && answer == CUDA_SUCCESS && waits) {
        answer = turns_enter(&flight, &late);
        launch->turns |= flight != NULL ? TURNS_INSIDE : 0;
    }
    if (flight != NULL && late && work.of != NULL && kernel_gone(work.of)) {
        answer = CUDA_ERROR_INVALID_HANDLE;
    }
    launch->flight = counts ? flight : NULL;
    if (launch->flight != NULL) {
        give(launch, flight, flags);
    }
    return answer;
}

OFTEN CUresult begin(struct launch *launch, CUstream stream, struct work work, uint64_t prior,
                     enum kind kind) {
    if (__builtin_expect(__atomic_load_n(launch_flags[0], __ATOMIC_RELAXED) & DV_PAGE_BUDGET_TURNS,
                         0)) {
        turns_pause(); /* in a suspended share the driver would block the look for the stream's context */
    }
    bool captured = capture_has(stream);
    struct flight *flight = captured ? NULL : flight_of(stream);
    launch->flight = NULL;
    launch->turns = captured ? TURNS_CAPTURED : 0;
    if (flight == NULL) {
        return CUDA_SUCCESS;
    }
    uint32_t flags = __atomic_load_n(launch_flags[flight->gpu->number], __ATOMIC_RELAXED);
    if (__builtin_expect(flags & DV_PAGE_BUDGET_TURNS, 0)) {
        return begin_turn(launch, flight, work, prior, flags, kind);
    }
    if (flags == 0 || kind == PASSAGE) {
        return CUDA_SUCCESS;
    }
    CUresult answer = CUDA_SUCCESS;
    if (charge(launch, flight, work, prior, flags, kind, &answer)) {
        give(launch, flight, flags);
    }
    return answer;
}

CUresult launch_begin(struct launch *launch, CUstream stream, struct work work, uint64_t prior) {
    return begin(launch, stream, work, prior, WORK);
}

static CUresult begin_other(struct launch *launch, CUstream stream, struct work work,
                            uint64_t prior, enum kind kind) {
    return begin(launch, stream, work, prior, kind);
}

CUresult launch_joins(struct launch *launch, CUstream stream, struct work work, uint64_t prior) {
    return begin_other(launch, stream, work, prior, WORK_JOINED);
}

CUresult launch_passes(struct launch *launch, CUstream stream) {
    return begin_other(launch, stream, (struct work){.of = NULL}, 0, PASSAGE);
}

CUresult launch_records(struct launch *launch, CUstream stream) {
    return begin_other(launch, stream, cost_moved(COST_EVENT, 0), EVENT_NS, RECORD);
}

CUresult launch_records_apart(struct launch *launch) {
    launch_follows(CU_STREAM_LEGACY);
    return begin_other(launch, CU_STREAM_LEGACY, cost_moved(COST_EVENT, 0), EVENT_NS, RECORD_APART);
}

void launch_end(struct launch *launch, CUresult result) {
    if (__builtin_expect(launch->turns & TURNS_INSIDE, 0)) {
        turns_leave();
    }
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
