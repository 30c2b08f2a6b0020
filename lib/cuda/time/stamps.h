/*
 * Moments on the GPU: the timing events of one context, and how its clock relates to ours.
 *
 * The driver tells only the difference between two events. All events of a context are read against
 * one of them, the origin. It is replaced about every second, because the driver tells differences
 * as a float. The offset to CLOCK_MONOTONIC is known by bounds: an event is not stamped before the
 * call that recorded it began, nor after it was seen done. Many events narrow the bounds to some
 * microseconds.
 *
 * A function that the driver refuses reports no error. No lock is held during a driver call.
 */
#ifndef DIVVY_CUDA_TIME_STAMPS_H
#define DIVVY_CUDA_TIME_STAMPS_H

#include "cuda/driver.h"
#include "cuda/lock.h"

#define STAMPS_FREE 64u
#define STAMPS_ECHOES 12u

/* Events are recorded and read while the context lives, which ends before the driver is asked to end
 * it. Events end with their context. Stamps that have ended serve another context, except those
 * whose context was lost without warning: a thread may be at work with them. */
enum stamps_state { STAMPS_LIVE, STAMPS_ENDING, STAMPS_ENDED, STAMPS_LOST };

struct stamps {
    uint32_t owner;  /* the context's life */
    uint32_t device; /* its number in the share */
    uint32_t state;
    uint32_t reading;
    uint32_t
        blocking; /* the context has streams that wait for the legacy one and it for them; atomic */
    lock lock;    /* of the free events */
    CUevent free[STAMPS_FREE];
    uint32_t free_count;
    /* Used by the reader alone: see stamps_begin. */
    CUevent origin;
    int64_t origin_at; /* ns of the context's own clock */
    int64_t low, high; /* bounds of CLOCK_MONOTONIC minus that clock; low > high: not known yet */
    int64_t event_ns;  /* GPU time that recording an event takes, the least seen */
    uint32_t echoes;   /* how often event_ns was measured; atomic */
    struct stamps *next;
};

static inline uint32_t stamps_state(const struct stamps *stamps) {
    return __atomic_load_n(&stamps->state, __ATOMIC_ACQUIRE);
}

/* Stamps without any event, of a new context. */
DV_HIDDEN void stamps_begin_life(struct stamps *stamps, uint32_t owner, uint32_t device);

/* An event recorded in the stream and when that call began. NULL if a new event is needed and the
 * stream's context is not current, or the driver refused: then *after is STAMPS_REFUSED. The stream
 * is not being captured. */
#define STAMPS_REFUSED UINT64_MAX
DV_HIDDEN CUevent stamps_record(struct stamps *stamps, CUstream stream, uint64_t *after);

/* Records a second event right after another one, to learn what an event costs. Only the first few
 * times; NULL later. */
DV_HIDDEN CUevent stamps_echo(struct stamps *stamps, CUstream stream);

/* For the reader. stamps_heard learns what an event costs from the moments of an event and of its
 * echo; stamps_between returns the time between two events without that cost. */
DV_HIDDEN void stamps_heard(struct stamps *stamps, int64_t end, int64_t echo);
DV_HIDDEN uint64_t stamps_between(const struct stamps *stamps, int64_t begin, int64_t end);

/* Returns an event that nobody waits for any more. */
DV_HIDDEN void stamps_give(struct stamps *stamps, CUevent event);

/* Makes the caller the only reader. stamps_begin returns false if there is one already;
 * stamps_await waits until it ends, which takes some driver calls that wait for nobody. */
DV_HIDDEN bool stamps_begin(struct stamps *stamps);
DV_HIDDEN void stamps_await(struct stamps *stamps);
DV_HIDDEN void stamps_end(struct stamps *stamps);

/* For the reader. The moment of an event that is done, in ns of the context's clock: recorded after
 * `after`, seen done at `seen`. False if the driver does not tell. */
DV_HIDDEN bool stamps_read(struct stamps *stamps, CUevent event, uint64_t after, uint64_t seen,
                           int64_t *at);

/* That moment in ns of CLOCK_MONOTONIC: the earliest possible, and the likeliest. */
DV_HIDDEN uint64_t stamps_earliest(const struct stamps *stamps, int64_t at);
DV_HIDDEN uint64_t stamps_monotonic(const struct stamps *stamps, int64_t at);

/* For the reader: gives the event back, or takes it as the next origin. `at` is its moment. */
DV_HIDDEN void stamps_done(struct stamps *stamps, CUevent event, int64_t at);

/* For the reader: the context's clock may have changed. */
DV_HIDDEN void stamps_restart(struct stamps *stamps);

#endif
