/* CLOCK_MONOTONIC, by which processes tell each other times, and a faster approximation of it. */
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

/* The processor's counter, whose frequency is not known. */
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

/* CLOCK_MONOTONIC computed from the counter and corrected about every millisecond. Costs less than
 * half of now_ns. The error is some tens of ns, or at most a millisecond on a processor whose
 * counter is not steady. */
static inline __attribute__((always_inline)) uint64_t now_about(struct notes *notes) {
    uint64_t ticks = now_ticks(), since = ticks - notes->ticks;
    if (__builtin_expect(since >= notes->span, 0)) {
        return now_set_right(notes, ticks);
    }
    return notes->ns + (since * notes->scale >> 24);
}

#endif
