#include "cuda/time/precedence.h"

#include "cuda/stream.h"

#define LATE_NS 20000000u /* a thread may run so much later than it meant to look again */

int precedence_of(CUstream stream) {
    int priority = 0;
    if (!stream_is_default(stream)) {
        DV_CALL(cuStreamGetPriority, stream, &priority);
    }
    return priority;
}

/* Takes a place that nobody has, or that nobody renewed. NULL if there is none. */
static struct waiter *take(struct gpu *gpu, uint64_t now, uint64_t until) {
    for (unsigned i = 0; i < GPU_WAITERS; i++) {
        struct waiter *place = &gpu->waiters[i];
        uint64_t old = __atomic_load_n(&place->until, __ATOMIC_RELAXED);
        if (old < now && __atomic_compare_exchange_n(&place->until, &old, until, false,
                                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            return place;
        }
    }
    return NULL;
}

void precedence_note(struct gpu *gpu, struct precedence *launch, uint64_t now, uint64_t until) {
    if (launch->priority >= 0) {
        return;
    }
    if (launch->place == NULL) {
        launch->place = take(gpu, now, until + LATE_NS);
    }
    if (launch->place != NULL) {
        __atomic_store_n(&launch->place->priority, launch->priority, __ATOMIC_RELAXED);
        __atomic_store_n(&launch->place->until, until + LATE_NS, __ATOMIC_RELEASE);
    }
}

void precedence_end(struct precedence *launch) {
    if (launch->place != NULL) {
        __atomic_store_n(&launch->place->until, 0, __ATOMIC_RELEASE);
    }
}

bool precedence_yields(const struct gpu *gpu, CUstream stream, uint64_t now) {
    int highest = 0;
    for (unsigned i = 0; i < GPU_WAITERS; i++) {
        const struct waiter *place = &gpu->waiters[i];
        if (__atomic_load_n(&place->until, __ATOMIC_ACQUIRE) >= now) {
            int priority = __atomic_load_n(&place->priority, __ATOMIC_RELAXED);
            highest = priority < highest ? priority : highest;
        }
    }
    return highest < 0 && precedence_of(stream) > highest;
}
