/* pthread_cancel and our calls. The driver's functions are no cancellation points (pthreads(7)), but
 * they may call such: a thread that ended there would keep locks and reservations for ever. */
#ifndef LIBC_CANCEL_H
#define LIBC_CANCEL_H

#include <pthread.h>

static inline int cancel_hold(void) {
    int state = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    return state;
}

static inline void cancel_allow(const int *state) {
    pthread_setcancelstate(*state, NULL);
}

/* A declaration: from here to the end of the block, a request to cancel this thread waits. */
#define UNCANCELLED                                                                                \
    __attribute__((cleanup(cancel_allow), unused)) const int before_uncancelled = cancel_hold()

#endif
