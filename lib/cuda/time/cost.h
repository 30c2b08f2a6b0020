/*
 * What a launch costs: nanoseconds between the stamps around it, learned per kernel and shape, per
 * executable graph, and per amount of bytes that a copy or a memset moves.
 *
 * One table for the process, of a fixed size and without locks: an entry is a few words that are
 * read and written singly, and a lost update or an entry that two launches fight for costs accuracy
 * for a while, which the arbiter's correction makes good.
 */
#ifndef DIVVY_CUDA_TIME_COST_H
#define DIVVY_CUDA_TIME_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "substitute/substitute.h"

#define COST_PRIOR_NS 20000u /* of a launch about which nothing is known */
#define COST_TRIES 3u
#define COST_LEARNED 8u /* samples from which an entry is measured only now and then */

struct cost {
    uint64_t key; /* 0: free */
    uint32_t samples;
    uint16_t high;  /* samples in a row that were in doubt */
    uint16_t tries; /* launches measured alone before there was a sample */
    uint64_t ns;    /* the estimate, 1 at least */
};

/* The entry of a key, made with a prior if there is none. Never NULL; valid for good, though later
 * it may be another key's. */
DV_HIDDEN struct cost *cost_find(uint64_t key, uint64_t prior);

/* What is behind the key has changed: the estimate stands as a prior. */
DV_HIDDEN void cost_relearn(uint64_t key);

/* Learns that one launch took ns. A sample is in doubt where it may contain more than the launch,
 * as neighbours' slices or a pause of the calling thread: one far above the estimate is then passed
 * over until such have come several times in a row. Returns whether it counted. */
DV_HIDDEN bool cost_learn(struct cost *cost, uint64_t ns, bool doubtful);

/* Counts a launch of which nothing is known yet; true for the first few, which are measured alone
 * so that the first samples are good ones. */
static inline bool cost_try(struct cost *cost) {
    uint16_t tries = __atomic_load_n(&cost->tries, __ATOMIC_RELAXED);
    if (tries >= COST_TRIES) {
        return false;
    }
    __atomic_store_n(&cost->tries, (uint16_t)(tries + 1), __ATOMIC_RELAXED);
    return true;
}

/* Whether launches have been tried, and none of them is known to have ended. */
static inline bool cost_awaited(const struct cost *cost) {
    return __atomic_load_n(&cost->samples, __ATOMIC_RELAXED) == 0 &&
           __atomic_load_n(&cost->tries, __ATOMIC_RELAXED) >= COST_TRIES;
}

static inline uint64_t cost_ns(const struct cost *cost) {
    return __atomic_load_n(&cost->ns, __ATOMIC_RELAXED);
}

static inline uint32_t cost_samples(const struct cost *cost) {
    return __atomic_load_n(&cost->samples, __ATOMIC_RELAXED);
}

/* Keys: 64 bits of hash, in which two launches meet as good as never. */
static inline uint64_t cost_key(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    uint64_t sum = a * 0x9e3779b97f4a7c15u + b * 0xc2b2ae3d27d4eb4fu + c * 0x165667b19e3779f9u +
                   d * 0xd6e8feb86659fd93u;
    sum = (sum ^ sum >> 32) * 0xff51afd7ed558ccdu;
    return (sum ^ sum >> 29) | 1;
}

/* A kernel in one shape. */
static inline uint64_t cost_kernel(const void *function, unsigned gx, unsigned gy, unsigned gz,
                                   unsigned bx, unsigned by, unsigned bz, unsigned shared) {
    return cost_key((uint64_t)(uintptr_t)function, (uint64_t)gy << 32 | gx, (uint64_t)bx << 32 | gz,
                    ((uint64_t)shared << 32 | (uint64_t)by << 16) ^ bz);
}

/* Other work: what it is done to, and what is done. */
enum cost_kind { COST_GRAPH = 1, COST_COPY, COST_SET, COST_UNKNOWN };
static inline uint64_t cost_other(enum cost_kind kind, uint64_t of) {
    return cost_key(of, 0, 0, (uint64_t)kind << 60 | 1);
}

/* Bytes by class: the next four sizes to a power of two cost the same. */
static inline uint64_t cost_bytes(uint64_t bytes) {
    unsigned shift = bytes < 8 ? 0 : 61 - (unsigned)__builtin_clzll(bytes);
    return bytes >> shift << shift;
}

#endif
