/* Turns of a share's memory on a GPU: what the agent orders, and what this process tells of itself.
 *
 * The agent writes struct turn of the config page. Struct residence and struct present of the state
 * page are the processes'. All of it is read only while the flags of the budget have
 * DV_PAGE_BUDGET_TURNS. Telling needs a slot, which a process has from its first charge on; without
 * one nothing is told.
 *
 * Threads: every function may be called by any thread at any time. Nothing here calls malloc, prints
 * or waits. None is safe in a signal handler. A device that the share does not have has an open gate.
 */
#ifndef DIVVY_SHARE_RESIDENCE_H
#define DIVVY_SHARE_RESIDENCE_H

#include "share/share.h"

#define DV_TURN_AHEAD_NS 2000000000u /* a gate that is to stay closed for longer is damaged */

/* Where the order of device dev stands, for as long as the process lives; never NULL. It is a state
 * and a number, which are compared as a whole. */
const uint64_t *dv_turn_word(const dv_share *share, unsigned dev);
uint64_t dv_turn_order(const dv_share *share, unsigned dev);

static inline unsigned dv_turn_state(uint64_t order) {
    return (unsigned)(order & ((1u << DV_PAGE_TURN_BITS) - 1));
}

/* Whether an order opens the gate whatever the time is. A state that nobody knows closes nothing. */
static inline bool dv_turn_opens(uint64_t order) {
    unsigned state = dv_turn_state(order);
    return state == DV_PAGE_TURN_OPEN || state == DV_PAGE_TURN_RESIDENT ||
           state >= DV_PAGE_TURN_STATES;
}

/* Whether the gate is closed at now, CLOCK_MONOTONIC ns. */
bool dv_turn_closed(const dv_share *share, unsigned dev, uint64_t now);

/* What the order says beside its state, in bytes. */
uint64_t dv_turn_give(const dv_share *share, unsigned dev);
uint64_t dv_turn_room(const dv_share *share, unsigned dev);

/* The part of an amount for the whole share that falls on this process: by what each living process
 * was charged, because that stands still while memory moves. All of it if nothing is known. Costs a
 * system call for each of them. */
uint64_t dv_turn_part(const dv_share *share, unsigned dev, uint64_t bytes);

/* This process has a thread that carries out orders; it carried out this one, and has so many bytes
 * on the GPU by now. */
void dv_present_takes_part(dv_share *share, unsigned dev, bool takes_part);
void dv_present_done(dv_share *share, unsigned dev, uint64_t order);
void dv_present_there(dv_share *share, unsigned dev, uint64_t bytes);

/* A call uses the GPU at now; told to a millisecond. */
void dv_present_called(dv_share *share, unsigned dev, uint64_t now);

/* Since when a call waits at the closed gate; 0: none does. */
void dv_present_waits(dv_share *share, unsigned dev, uint64_t since);

/* This process has had what a checkpoint cannot save, until it ends: DV_PAGE_UNSAVED_... It is told
 * whatever the flags of the budget are, and costs too little to be told only once. */
void dv_present_unsaved(dv_share *share, uint32_t what);

/* A thread waited at the closed gate from `from` to now. Each moment counts once. */
void dv_residence_held(dv_share *share, unsigned dev, uint64_t from, uint64_t now);

/* Bytes that were moved in so many ns. */
void dv_residence_moved(dv_share *share, unsigned dev, uint64_t in, uint64_t out, uint64_t ns);

#endif
