/*
 * The turn gate: calls that use the memory of a share wait while it is not the share's turn.
 *
 * The agent's order in the config page opens and closes it. While the flags of a budget have
 * DV_PAGE_BUDGET_TURNS, launches, fills, copies and prefetches pass it; with the order `suspended`
 * also everything else that the driver would block soon, so that the agent learns that somebody
 * waits. What could deadlock never waits for a turn: work of streams that are being captured, host
 * functions, waits, records of events, frees, and calls that the driver makes itself.
 *
 * A call that has passed is inside until the driver has answered. It tells so before it looks at the
 * order, and who carries out orders looks at the order before it looks for such calls: either that
 * one sees the call, or the call sees the gate closed.
 */
#ifndef DIVVY_CUDA_TIME_TURNS_H
#define DIVVY_CUDA_TIME_TURNS_H

#include "cuda/time/flight.h"
#include "cuda/time/launch.h"
#include "cuda/time/notes.h"
#include "share/residence.h"

/* For each GPU of the share, where its order stands. */
DV_HIDDEN extern const uint64_t *turns_words[DV_PAGE_DEVICES];

/* Whether a thread of this process carries out orders. While none does, each call says so. Atomic. */
DV_HIDDEN extern uint32_t turns_served;
EVENT(turns_unserved, (dv_share * share));

/* Set by each call that passes, cleared by who wants to know whether any did. Atomic. */
DV_HIDDEN extern uint32_t turns_passed;

/* Bits of launch.turns. */
#define TURNS_INSIDE 1u   /* it has passed, and turns_leave follows */
#define TURNS_USES 2u     /* what it names in the share's memory is used now */
#define TURNS_CAPTURED 4u /* it becomes part of a graph */

static inline bool turns_open(unsigned number) {
    return __builtin_expect(dv_turn_opens(__atomic_load_n(turns_words[number], __ATOMIC_SEQ_CST)),
                            1);
}

/* Waits while the gate of the flight's GPU is closed; sets *late if it was. If the stream ends
 * meanwhile, *flight is NULL and the answer is what the call answers; if it is captured meanwhile,
 * *flight is NULL and the call goes on. */
DV_HIDDEN CUresult turns_wait(struct flight **flight, bool *late);

/* The same, and the thread is inside afterwards, unless *flight is NULL. */
DV_HIDDEN CUresult turns_enter_late(struct flight **flight, bool *late);
static inline CUresult turns_enter(struct flight **flight, bool *late) {
    __atomic_exchange_n(&notes_here->inside, 1, __ATOMIC_SEQ_CST);
    return turns_open((*flight)->gpu->number) ? CUDA_SUCCESS : turns_enter_late(flight, late);
}
static inline void turns_leave(void) {
    __atomic_store_n(&notes_here->inside, 0, __ATOMIC_RELEASE);
}

/* The calling thread is about to use a GPU by a call that passes the gate. */
DV_HIDDEN void turns_called(const struct gpu *gpu);

/* For a call that uses the GPU and no memory of the share: waits while the share is suspended. Free
 * of cost without DV_PAGE_BUDGET_TURNS. Returns for how many ns it waited. */
DV_HIDDEN uint64_t turns_pause(void);

#endif
