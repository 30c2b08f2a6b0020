/* The clock of everything that is told across processes, and a quicker one that follows it. */
#ifndef DIVVY_CUDA_TIME_NOW_H
#define DIVVY_CUDA_TIME_NOW_H

#include <stdint.h>
#include <time.h>

#include "cuda/time/notes.h"

/* Nanoseconds of CLOCK_MONOTONIC; without a system call where the kernel offers that. */
static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The processor's counter, whose pace is not known. */
static inline uint64_t now_ticks(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return 0;
#endif
}

DV_HIDDEN uint64_t now_set_right(struct notes *notes, uint64_t ticks);

/* CLOCK_MONOTONIC as the counter has it, set right about every millisecond: at less than half the
 * price, wrong by some tens of ns, and by a millisecond at most where a processor's counter is not
 * what it should be. */
static inline uint64_t now_about(struct notes *notes) {
    uint64_t ticks = now_ticks(), since = ticks - notes->ticks;
    if (__builtin_expect(since >= notes->span, 0)) {
        return now_set_right(notes, ticks);
    }
    return notes->ns + (since * notes->scale >> 24);
}

#endif
