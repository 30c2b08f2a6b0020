#include "cuda/time/cost.h"

#include <string.h>

#include "cuda/fork.h"

#define ENTRIES                                                                                    \
    (1u << 14) /* power of two; programs have thousands of kernels and shapes at most             
    \ */
#define PROBES 16u

#define SLICE_NS 1000000u /* about the time slice of a neighbour */
#define HIGH_TIMES 3      /* so many doubtful samples in a row are believed */
#define WEIGHT 8          /* weight of the estimate against one more sample */

static struct cost table[ENTRIES];

static void set(struct cost *cost, uint64_t ns, uint32_t samples) {
    __atomic_store_n(&cost->ns, ns > 0 ? ns : 1, __ATOMIC_RELAXED);
    __atomic_store_n(&cost->samples, samples, __ATOMIC_RELAXED);
    __atomic_store_n(&cost->high, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&cost->tries, 0, __ATOMIC_RELAXED);
}

/* Takes a free entry near the key's own position, or else replaces the one at that position. */
static __attribute__((noinline, cold)) struct cost *make(uint64_t key, uint64_t prior) {
    for (unsigned i = 0; i < PROBES; i++) {
        struct cost *cost = &table[(key + i) & (ENTRIES - 1)];
        uint64_t none = 0;
        if (__atomic_compare_exchange_n(&cost->key, &none, key, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {
            __atomic_store_n(&cost->digest, 0, __ATOMIC_RELAXED);
            set(cost, prior, 0);
            return cost;
        }
        if (none == key) {
            return cost;
        }
    }
    struct cost *home = &table[key & (ENTRIES - 1)];
    __atomic_store_n(&home->digest, 0, __ATOMIC_RELAXED);
    set(home, prior, 0);
    __atomic_store_n(&home->key, key, __ATOMIC_RELEASE);
    return home;
}

static struct cost *look(uint64_t key) {
    for (unsigned i = 0; i < PROBES; i++) {
        struct cost *cost = &table[(key + i) & (ENTRIES - 1)];
        uint64_t there = __atomic_load_n(&cost->key, __ATOMIC_ACQUIRE);
        if (__builtin_expect(there == key, 1)) {
            return cost;
        }
        if (there == 0) {
            return NULL;
        }
    }
    return NULL;
}

struct cost *cost_find(uint64_t key, uint64_t prior) {
    struct cost *cost = look(key);
    return __builtin_expect(cost != NULL, 1) ? cost : make(key, prior);
}

void cost_relearn(uint64_t key) {
    struct cost *cost = look(key);
    if (cost != NULL) {
        set(cost, cost_ns(cost), 0);
    }
}

void cost_adopt(struct cost *cost, uint64_t ns) {
    set(cost, ns, 1);
}

bool cost_learn(struct cost *cost, uint64_t ns, bool doubtful) {
    uint32_t samples = cost_samples(cost);
    uint64_t old = cost_ns(cost);
    if (samples == 0 || (doubtful && samples < COST_LEARNED && ns < old / 4)) {
        set(cost, ns, samples + 1); /* all samples before it were doubtful */
        return true;
    }
    uint16_t high = __atomic_load_n(&cost->high, __ATOMIC_RELAXED);
    if (doubtful && ns > 3 * old + SLICE_NS / 4) {
        __atomic_store_n(&cost->high, (uint16_t)(high + 1), __ATOMIC_RELAXED);
        if (high + 1 < HIGH_TIMES) {
            return false;
        }
    } else if (high > 0) {
        __atomic_store_n(&cost->high, 0, __ATOMIC_RELAXED);
    }
    /* The first samples have equal weight, later ones less and less. */
    uint64_t weight = samples < WEIGHT ? samples : WEIGHT;
    uint64_t now = (old * weight + ns) / (weight + 1);
    __atomic_store_n(&cost->ns, now > 0 ? now : 1, __ATOMIC_RELAXED);
    __atomic_store_n(&cost->samples, samples < UINT32_MAX ? samples + 1 : samples,
                     __ATOMIC_RELAXED);
    return true;
}

static void costs_forked(void) {
    memset(table, 0, sizeof table);
}
ON(forked, costs_forked);
