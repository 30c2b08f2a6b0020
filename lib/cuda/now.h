/* The clock of everything that is told across processes, and a quicker one that follows it. */
#ifndef DIVVY_CUDA_NOW_H
#define DIVVY_CUDA_NOW_H

#include <stdint.h>
#include <time.h>

#include "common/substitute.h"

/* Nanoseconds of CLOCK_MONOTONIC; without a system call where the kernel offers that. */
static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A thread's guess of that clock by the processor's counter, set right about every millisecond. */
struct now_guess {
    uint64_t ticks, ns; /* when it was last set right */
    uint32_t span;      /* ticks for which it may be used, 0: not at all */
    uint32_t scale;     /* ns per tick, in parts of 2^24 */
};

DV_HIDDEN extern _Thread_local struct now_guess now_guess
    __attribute__((tls_model("initial-exec")));

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

DV_HIDDEN uint64_t now_set_right(uint64_t ticks);

/* The same at less than half the price, wrong by some tens of ns, and by a millisecond at most
 * where a processor's counter is not what it should be. */
static inline uint64_t now_about(void) {
    uint64_t ticks = now_ticks(), since = ticks - now_guess.ticks;
    if (__builtin_expect(since >= now_guess.span, 0)) {
        return now_set_right(ticks);
    }
    return now_guess.ns + (since * now_guess.scale >> 24);
}

#endif
