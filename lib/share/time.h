/* A tenant's GPU time: the bucket from which all its processes spend, and what they tell the
 * arbiter.
 *
 * The arbiter writes struct budget of the config page, which is read-only here. Struct bucket of the
 * state page has what is spent, and struct worker has the measured work.
 * Each change of the bucket's balance is one compare-and-swap without a lock. So a process that
 * dies has either charged a launch or not, and blocks nobody. At most one correction by the arbiter
 * (DV_TIME_DEBT_NS) can be lost with it.
 *
 * How to admit a launch, with now = CLOCK_MONOTONIC in ns:
 *
 *     if ((load of *dv_time_flags_word(s, dev) & DV_PAGE_BUDGET_LIMITED) == 0)
 *         launch;                                  // and nothing else
 *     while (!dv_time_admit(s, dev, now, ns)) {    // ns = estimate * dv_time_stretch / DV_PAGE_WHOLE
 *         if (dv_time_escape(s, dev, now, began, false))
 *             { dv_time_charge(s, dev, now, ns, 1); break; }
 *         dv_time_wanted(s, dev, now), dv_time_nap(dv_time_job_deficit_ns(s, dev, now));
 *     }
 *
 * A process may charge a portion in advance, spend it without atomics, and give back the rest.
 *
 * Values in the pages are limited before they are used, so a damaged or hostile page can give or
 * withhold no more than a sane one could: the rate is at most two whole GPUs, the balance lies
 * between -DV_TIME_DEBT_NS and DV_TIME_BURST_NS, and a correction changes it by at most
 * DV_TIME_DEBT_NS. A device number that the share does not have reads as a device without a limit.
 *
 * Threads: every function may be called by any thread at any time, except those that publish the
 * work of a worker (see dv_time_worker). Nothing here calls malloc, prints or touches signals;
 * errno is kept. None is safe in a signal handler.
 */
#ifndef DIVVY_SHARE_TIME_H
#define DIVVY_SHARE_TIME_H

#include "share/share.h"

#define DV_TIME_BURST_NS 1000000000   /* most that a bucket can hold */
#define DV_TIME_DEBT_NS 3600000000000 /* debt beyond an hour is forgotten: the page is damaged */
#define DV_TIME_START_NS 2000000      /* what a new bucket holds, if its burst is not less */
#define DV_TIME_USED_NS 100000000u    /* a GPU belongs to the job for so long after a charge */
#define DV_TIME_NAP_NS 5000000u       /* longest sleep before the budget is read again */
#define DV_TIME_WAIT_NS 5000000000u   /* then one launch of the share is admitted on debt */
#define DV_TIME_DEPTH_NS 10000000000u /* most estimated work that a process may have under way */

/* Where the flags of device dev stand, for as long as the process lives; never NULL. One relaxed
 * load of it, __atomic_load_n(word, __ATOMIC_RELAXED), is all that a launch without a limit costs.
 */
const uint32_t *dv_time_flags_word(const dv_share *share, unsigned dev);

/* What to multiply estimates by, in parts per million: 10000 to 100000000. */
uint32_t dv_time_stretch(const dv_share *share, unsigned dev);

/* The same from the budget's own word, for who has that at hand. */
static inline uint32_t dv_time_stretch_of(uint32_t word) {
    uint32_t most = word < 100000000 ? word : 100000000;
    return word == 0 ? DV_PAGE_WHOLE : most > 10000 ? most : 10000;
}

/* ns of estimated work that this process may have on the GPU and not finished, 0 to
 * DV_TIME_DEPTH_NS; one launch is always allowed. */
uint64_t dv_time_depth(const dv_share *share, unsigned dev);

/* Adds what the share gained until now, takes ns of it for so many launches, and returns the
 * balance after that, in ns. May go below 0; refuses nothing. ns is after dv_time_stretch. A now
 * before that of an earlier call of any process gains nothing and does no harm. */
int64_t dv_time_charge(dv_share *share, unsigned dev, uint64_t now, uint64_t ns, uint32_t launches);

/* Gives back what was charged for launches that did not take place, and returns the balance. */
int64_t dv_time_return(dv_share *share, unsigned dev, uint64_t ns, uint32_t launches);

/* Adds what the share gained until now and returns the balance in ns. INT64_MAX without a limit. */
int64_t dv_time_balance(dv_share *share, unsigned dev, uint64_t now);

/* ns of real time until the balance is not negative at the present rate. 0 if it is not negative
 * now, else 1 to DV_TIME_NAP_NS, so that a change of the budget is seen in time. */
uint64_t dv_time_deficit_ns(dv_share *share, unsigned dev, uint64_t now);

/* The same for a job on several GPUs. It waits for all of them at once, so that its collectives
 * meet. Returns the least balance and the longest deficit of device dev, to which the launch goes,
 * and of all other devices with a limit on which the tenant charged something in the last
 * DV_TIME_USED_NS. */
int64_t dv_time_job_balance(dv_share *share, unsigned dev, uint64_t now);
uint64_t dv_time_job_deficit_ns(dv_share *share, unsigned dev, uint64_t now);

/* Charges ns for one launch, unless the job is in debt (dv_time_job_balance); then false. Of all
 * threads and processes that try at once only one gets what is left. */
bool dv_time_admit(dv_share *share, unsigned dev, uint64_t now, uint64_t ns);

/* Whether a launch that has waited since `began` may go although it should wait, because work under
 * way may wait for it. That is granted once in DV_TIME_WAIT_NS to all of the share, if something has
 * been under way for as long (`stuck`: the caller knows of some), or after a much longer wait if
 * anything is: the page may tell the begin of old work wrong. Without work under way a debt only
 * shrinks. */
bool dv_time_escape(dv_share *share, unsigned dev, uint64_t now, uint64_t began, bool stuck);

/* Launches of unknown cost take turns, one of the whole share at a time, because they are charged
 * next to nothing until they are measured. dv_time_turn returns a number for dv_time_turn_end, or 0
 * while somebody has the turn. A turn passes on after DV_TIME_WAIT_NS, whatever became of its owner,
 * and at once when its process died; what that process's launch took until now is then charged. */
uint64_t dv_time_turn(dv_share *share, unsigned dev, uint64_t now);
void dv_time_turn_end(dv_share *share, unsigned dev, uint64_t turn);

/* Whether somebody has the turn. Launches of known cost wait too then, or they would be taken for a
 * part of what is measured, and be charged beside it for credit that is spent already. */
bool dv_time_turn_taken(const dv_share *share, unsigned dev, uint64_t now);

/* What a launch took as some process of the share learned it, in ns between the stamps around it; 0
 * if nobody did. The key is a digest that is the same in every process. */
uint64_t dv_time_learned(const dv_share *share, unsigned dev, uint64_t key);
void dv_time_learn(dv_share *share, unsigned dev, uint64_t key, uint64_t ns);

/* Counters for the arbiter and for people: a launch has to wait, at now; a launch has waited for
 * ns; a launch was held back from `from` to now, which counts each moment once however many wait.
 * It yielded if the pulse of a neighbour was why. */
void dv_time_wanted(dv_share *share, unsigned dev, uint64_t now);
void dv_time_waited(dv_share *share, unsigned dev, uint64_t ns);
void dv_time_held_back(dv_share *share, unsigned dev, uint64_t from, uint64_t now, bool yielded);

/* Counts for people that a thread was in a call from `from` to now: in a copy between host and GPU,
 * or waiting for work of the GPU. Each moment counts once however many threads there are; where
 * calls overlap something may be left out. */
void dv_time_blocked(dv_share *share, unsigned dev, bool copies, uint64_t from, uint64_t now);

/* The number of the worker (struct dv_page_worker) in which this process tells the arbiter of its
 * work on device dev, 0 to DV_PAGE_WORKERS - 1. The first call takes one, and a slot if the process
 * has none. Returns -1 if all workers belong to living processes or there is no slot: then work is
 * charged at the learned cost only. A refusal is remembered for a second. Taking one costs some
 * microseconds, any further call a load. A forked child has none of its parent's; each copy of the
 * library in one process has its own.
 *
 * The functions that publish do nothing while the process has no worker. One thread at a time may
 * call them for one device: their caller has a lock around its measurements anyway. */
int dv_time_worker(dv_share *share, unsigned dev);

/* Tells that there is work which began at since and should end at until, both CLOCK_MONOTONIC ns,
 * and which no interval covers yet. since 0: there is none. */
void dv_time_open(dv_share *share, unsigned dev, uint64_t since, uint64_t until);

/* Tells of finished work without a gap, from begin to end (CLOCK_MONOTONIC ns, begin <= end), and
 * what was charged for its launches. This withdraws what dv_time_open told, so the caller tells
 * again what is still open. */
void dv_time_interval(dv_share *share, unsigned dev, uint64_t begin, uint64_t end,
                      uint64_t charged);

/* Whether any living process of the tenant told of work, on any of its GPUs, that began by `since`
 * and is not finished. */
bool dv_time_under_way(const dv_share *share, uint64_t since);

/* Adds ns charged for launches that no interval will cover. */
void dv_time_unmeasured(dv_share *share, unsigned dev, uint64_t ns);

/* Sleeps for ns, one second at most, with a timer slack of the call's own (the default of 50 us
 * would be a tenth of a short wait). A signal ends it early. */
void dv_time_nap(uint64_t ns);

#endif
