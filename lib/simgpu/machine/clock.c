/* The time of an instance: the host's, or one that moves on command alone. */
#define _GNU_SOURCE
#include "simgpu/machine/state.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t sg_now(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t sg_time(const struct sg_instance *in) {
    return in->state->is_virtual ? __atomic_load_n(&in->state->time, __ATOMIC_ACQUIRE) : sg_now();
}

void sg_clock_move(struct sg_instance *in, uint64_t ns) {
    __atomic_fetch_add(&in->state->time, ns, __ATOMIC_ACQ_REL);
    __atomic_fetch_add(&in->state->moves, 1, __ATOMIC_ACQ_REL);
    syscall(SYS_futex, &in->state->moves, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t sg_clock_moves(const struct sg_instance *in) {
    return __atomic_load_n(&in->state->moves, __ATOMIC_ACQUIRE);
}

/* Sleeping is exact to about 60 us; the rest is spent looking at the clock, and at nothing that is
 * shared: who waits must not be in the way of those who work. */
void sg_clock_wait(const struct sg_instance *in, uint64_t ns, uint32_t moves) {
    if (in->state->is_virtual) {
        syscall(SYS_futex, &in->state->moves, FUTEX_WAIT, moves, NULL, NULL, 0);
    } else if (ns > 150000) {
        struct timespec pause = {.tv_sec = (time_t)((ns - 80000) / 1000000000u),
                                 .tv_nsec = (long)((ns - 80000) % 1000000000u)};
        nanosleep(&pause, NULL);
    } else {
        uint64_t end = sg_now() + ns;
        do {
            sched_yield();
        } while (sg_now() < end);
    }
}
