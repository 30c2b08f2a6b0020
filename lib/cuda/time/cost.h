/*
 * What a launch costs: the nanoseconds between the stamps around it. They are learned for each
 * kernel and shape, each executable graph, and each amount of bytes that a copy or a memset moves.
 *
 * The process has one table of a fixed size without locks. Each word of an entry is read and
 * written by itself. A lost update, or two launches that share an entry, make estimates worse for a
 * while; the correction by the arbiter makes up for that.
 */
#ifndef DIVVY_CUDA_TIME_COST_H
#define DIVVY_CUDA_TIME_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "substitute/substitute.h"

#define COST_PRIOR_NS 20000u /* estimate for a launch about which nothing is known */
#define COST_TRIES 3u
#define COST_LEARNED 8u /* after so many samples an entry is measured only now and then */

struct cost {
    uint64_t key;    /* 0: free */
    uint64_t digest; /* under which the share keeps it, or COST_NAMELESS; 0: not asked for yet */
    uint32_t samples;
    uint16_t high;  /* samples in a row that were in doubt */
    uint16_t tries; /* launches that were measured alone before the first sample */
    uint64_t ns;    /* the estimate, 1 at least */
};
#define COST_NAMELESS 1u /* digest of what other processes cannot recognise */

/* What is launched: a kernel or a graph by its handle, and its shape; or the shape alone, if that
 * says all. */
struct work {
    const void *of;
    uint64_t shape;
};

/* Finds the entry of a key, or makes it with this prior. Never NULL. The pointer stays valid, but
 * the entry may later belong to another key. */
DV_HIDDEN struct cost *cost_find(uint64_t key, uint64_t prior);

/* The work behind the key has changed, so its estimate is only a prior from now on. */
DV_HIDDEN void cost_relearn(uint64_t key);

/* Takes over what another process of the share learned. */
DV_HIDDEN void cost_adopt(struct cost *cost, uint64_t ns);

/* Learns that one launch took ns. A sample is doubtful if it may contain more than the launch, such
 * as time slices of neighbours or a pause of the calling thread. A doubtful sample far above the
 * estimate is ignored unless several of them come in a row. Returns whether the sample counted. */
DV_HIDDEN bool cost_learn(struct cost *cost, uint64_t ns, bool doubtful);

/* Counts a launch whose cost is not known yet. True for the first few, which are measured alone to
 * get good first samples. */
static inline bool cost_try(struct cost *cost) {
    uint16_t tries = __atomic_load_n(&cost->tries, __ATOMIC_RELAXED);
    if (tries >= COST_TRIES) {
        return false;
    }
    __atomic_store_n(&cost->tries, (uint16_t)(tries + 1), __ATOMIC_RELAXED);
    return true;
}

static inline uint64_t cost_ns(const struct cost *cost) {
    return __atomic_load_n(&cost->ns, __ATOMIC_RELAXED);
}

static inline uint32_t cost_samples(const struct cost *cost) {
    return __atomic_load_n(&cost->samples, __ATOMIC_RELAXED);
}

static inline uint64_t cost_shape(uint64_t a, uint64_t b, uint64_t c) {
    return a * 0xc2b2ae3d27d4eb4fu + b * 0x165667b19e3779f9u + c * 0xd6e8feb86659fd93u;
}

/* A digest of 64 bits, so two of them are practically never the same; not 0. */
static inline uint64_t cost_digest(uint64_t of, uint64_t shape) {
    uint64_t sum = of * 0x9e3779b97f4a7c15u + shape;
    sum = (sum ^ sum >> 32) * 0xff51afd7ed558ccdu;
    return (sum ^ sum >> 29) | 1;
}

static inline uint64_t cost_key(struct work work) {
    return cost_digest((uint64_t)(uintptr_t)work.of, work.shape);
}

/* A kernel in one shape. */
static inline struct work cost_kernel(const void *function, unsigned gx, unsigned gy, unsigned gz,
                                      unsigned bx, unsigned by, unsigned bz, unsigned shared) {
    return (struct work){function, cost_shape((uint64_t)gy << 32 | gx, (uint64_t)bx << 32 | gz,
                                              ((uint64_t)shared << 32 | (uint64_t)by << 16) ^ bz)};
}

/* Other work: a graph, what moves or fills so many bytes, or the record of an event. */
enum cost_kind { COST_GRAPH = 1, COST_COPY, COST_SET, COST_UNKNOWN, COST_EVENT };
static inline struct work cost_graph(const void *exec) {
    return (struct work){exec, cost_shape(0, 0, (uint64_t)COST_GRAPH << 60 | 1)};
}
static inline struct work cost_moved(enum cost_kind kind, uint64_t bytes) {
    return (struct work){NULL, cost_shape(bytes, 0, (uint64_t)kind << 60 | 1)};
}

/* Rounds bytes down to a quarter of a power of two; sizes that round to the same cost the same. */
static inline uint64_t cost_bytes(uint64_t bytes) {
    unsigned shift = bytes < 8 ? 0 : 61 - (unsigned)__builtin_clzll(bytes);
    return bytes >> shift << shift;
}

#endif
