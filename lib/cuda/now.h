/* The clock of everything that is told across processes. */
#ifndef DIVVY_CUDA_NOW_H
#define DIVVY_CUDA_NOW_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds of CLOCK_MONOTONIC; without a system call where the kernel offers that. */
static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
