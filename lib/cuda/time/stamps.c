#include "cuda/time/stamps.h"

#include <sched.h>

#include "cuda/context.h"
#include "cuda/time/now.h"

#define ORIGIN_NS 1000000000 /* an older origin is replaced */
#define EVENT_MOST_NS 5000   /* a longer difference is not the cost of an event */
#define SEEN_NS                                                                                    \
    60000 /* typical upper bound from the end of work until a waiting thread notices it */
#define DRIFT_NS 30000 /* at most so far two clocks drift apart while one origin is used */

/* An event belongs to the context that is current when it is made, and ends with that. A thread can
 * name streams of other contexts than its current one. */
static CUevent make(const struct stamps *stamps) {
    CUevent event = NULL;
    struct home home;
    if (context_current(&home) != CUDA_SUCCESS || home.owner != stamps->owner ||
        DV_CALL(cuEventCreate, &event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        return NULL;
    }
    return event;
}

static CUevent take(struct stamps *stamps) {
    CUevent event = NULL;
    lock_take(&stamps->lock);
    if (stamps->free_count > 0) {
        event = stamps->free[--stamps->free_count];
    }
    lock_give(&stamps->lock);
    return event != NULL ? event : make(stamps);
}

void stamps_begin_life(struct stamps *stamps, uint32_t owner, uint32_t device) {
    stamps->owner = owner;
    stamps->device = device;
    stamps->free_count = 0;
    stamps->origin = NULL;
    stamps->echoes = 0;
    stamps->event_ns = 0;
    stamps->blocking = 0;
    __atomic_store_n(&stamps->state, STAMPS_LIVE, __ATOMIC_RELEASE);
}

CUevent stamps_record(struct stamps *stamps, CUstream stream, uint64_t *after) {
    CUevent event = stamps_state(stamps) == STAMPS_LIVE ? take(stamps) : NULL;
    *after = now_ns();
    if (event == NULL) {
        return NULL;
    }
    if (DV_CALL(cuEventRecord, event, stream) != CUDA_SUCCESS) {
        DV_CALL(cuEventDestroy_v2, event);
        *after = STAMPS_REFUSED;
        return NULL;
    }
    return event;
}

CUevent stamps_echo(struct stamps *stamps, CUstream stream) {
    uint64_t after;
    if (__atomic_load_n(&stamps->echoes, __ATOMIC_RELAXED) >= STAMPS_ECHOES) {
        return NULL;
    }
    __atomic_add_fetch(&stamps->echoes, 1, __ATOMIC_RELAXED);
    return stamps_record(stamps, stream, &after);
}

/* The two events run back to back only if the stream had work, so the smallest difference is the
 * event's own cost. */
void stamps_heard(struct stamps *stamps, int64_t end, int64_t echo) {
    if (echo > end && (stamps->event_ns == 0 || echo - end < stamps->event_ns)) {
        stamps->event_ns = echo - end;
    }
}

uint64_t stamps_between(const struct stamps *stamps, int64_t begin, int64_t end) {
    int64_t took = end - begin, event = stamps->event_ns;
    event = event < EVENT_MOST_NS ? event : EVENT_MOST_NS;
    return (uint64_t)(took > 2 * event ? took - event : took / 2);
}

void stamps_give(struct stamps *stamps, CUevent event) {
    if (event == NULL || stamps_state(stamps) != STAMPS_LIVE) {
        return;
    }
    lock_take(&stamps->lock);
    bool kept = stamps->free_count < STAMPS_FREE;
    if (kept) {
        stamps->free[stamps->free_count++] = event;
    }
    lock_give(&stamps->lock);
    if (!kept) {
        DV_CALL(cuEventDestroy_v2, event);
    }
}

bool stamps_begin(struct stamps *stamps) {
    return stamps_state(stamps) == STAMPS_LIVE &&
           !__atomic_exchange_n(&stamps->reading, 1, __ATOMIC_ACQUIRE);
}

void stamps_await(struct stamps *stamps) {
    while (__atomic_exchange_n(&stamps->reading, 1, __ATOMIC_ACQUIRE)) {
        sched_yield();
    }
}

void stamps_end(struct stamps *stamps) {
    __atomic_store_n(&stamps->reading, 0, __ATOMIC_RELEASE);
}

/* Narrows the bounds between the two clocks by what one event shows. Bounds that contradict it are
 * dropped, because the context's clock must have changed. */
static void bound(struct stamps *stamps, int64_t low, int64_t high) {
    bool known = stamps->low <= stamps->high;
    if (known && low <= stamps->high && high >= stamps->low) {
        stamps->low = low > stamps->low ? low : stamps->low;
        stamps->high = high < stamps->high ? high : stamps->high;
        return;
    }
    stamps->low = low;
    stamps->high = high;
}

bool stamps_read(struct stamps *stamps, CUevent event, uint64_t after, uint64_t seen, int64_t *at) {
    float ms = 0;
    if (stamps->origin == NULL) {
        stamps->origin = event;
        stamps->origin_at = 0;
        stamps->low = 1;
        stamps->high = 0;
    } else if (stamps->origin != event &&
               DV_CALL(cuEventElapsedTime, &ms, stamps->origin, event) != CUDA_SUCCESS) {
        return false;
    }
    *at = stamps->origin_at + (int64_t)((double)ms * 1e6);
    if (seen >= after) {
        bound(stamps, (int64_t)after - *at, (int64_t)seen - *at);
    }
    return true;
}

uint64_t stamps_earliest(const struct stamps *stamps, int64_t at) {
    return (uint64_t)(at + stamps->low);
}

/* An event in an idle stream is stamped soon after the call, so the lower bound is close to the
 * truth. Beside neighbours it is not, because their time slices may come first every time. Then the
 * upper bound is better: now and then the end of work is noticed soon. */
uint64_t stamps_monotonic(const struct stamps *stamps, int64_t at) {
    int64_t early = stamps->low + (stamps->high - stamps->low) / 4;
    int64_t late = stamps->high - SEEN_NS;
    return (uint64_t)(at + (early > late ? early : late));
}

void stamps_done(struct stamps *stamps, CUevent event, int64_t at) {
    if (event == stamps->origin) {
        return;
    }
    if (at - stamps->origin_at < ORIGIN_NS) {
        stamps_give(stamps, event);
        return;
    }
    stamps_give(stamps, stamps->origin);
    stamps->origin = event;
    stamps->origin_at = at;
    stamps->low -= DRIFT_NS;
    stamps->high += DRIFT_NS;
}

void stamps_restart(struct stamps *stamps) {
    stamps_give(stamps, stamps->origin);
    stamps->origin = NULL;
}
