/* Places of kernels and copies against a model that looks at every nanosecond. */
#include "simgpu/machine/engines.h"

#include <stdlib.h>
#include <string.h>

#include "test/check.h"

#define HORIZON 20000u
#define MULTIPROCESSORS 7u
#define STREAMS 5u

static unsigned used[HORIZON];
static unsigned char something[HORIZON];
static uint64_t last;

static uint32_t random_of(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static uint64_t expected(uint64_t ready, uint64_t ns, uint32_t need) {
    for (uint64_t start = ready, at = ready;; at++) {
        CHECK(at < HORIZON);
        if (used[at] + need > MULTIPROCESSORS) {
            start = at + 1;
        } else if (at + 1 == start + ns) {
            return start;
        }
    }
}

static void note(uint64_t start, uint64_t end, uint32_t need) {
    CHECK(end <= HORIZON);
    for (uint64_t at = start; at < end; at++) {
        used[at] += need;
        something[at] = 1;
    }
    last = end > last ? end : last;
}

/* One operation of a random stream; returns where it ends. */
static uint64_t place(struct sg_engines *e, uint64_t done, uint64_t after, uint32_t *seed) {
    struct sg_work work = {.ns = 1 + random_of(seed) % 40,
                           .after = after,
                           .engine = random_of(seed) % 8 ? SG_ON_MULTIPROCESSORS : SG_ON_NONE,
                           .multiprocessors = 1 + random_of(seed) % (MULTIPROCESSORS + 2)};
    uint32_t need = work.multiprocessors < MULTIPROCESSORS ? work.multiprocessors : MULTIPROCESSORS;
    uint64_t ready = after > done ? after : done;
    uint64_t end = sg_place(e, done, &work);

    if (work.engine == SG_ON_NONE) {
        CHECK_EQUAL(end, ready + work.ns);
        need = 0;
    } else {
        CHECK_EQUAL(end, expected(ready, work.ns, need) + work.ns);
    }
    note(end - work.ns, end, need);
    return end;
}

static void check_against_model(uint32_t seed) {
    static struct sg_engines e;
    uint64_t done = 0, tails[STREAMS] = {0};

    memset(used, 0, sizeof used);
    memset(something, 0, sizeof something);
    last = 0;
    sg_engines_start(&e, MULTIPROCESSORS);
    while (last < HORIZON - 3000) {
        uint64_t *tail = &tails[random_of(&seed) % STREAMS];
        *tail = place(&e, done, *tail, &seed);
        /* The channel executes some of it, sometimes all. */
        if (random_of(&seed) % 3 == 0) {
            done += random_of(&seed) % 60;
        }
        done = done < last ? done : last;
    }
    for (uint64_t at = 0; at < last; at++) {
        CHECK(something[at]);
    }
}

/* More pieces than are kept: holes are given up, never what has its place. */
static void check_many(void) {
    static struct sg_engines e;
    struct sg_work work = {.ns = 10, .engine = SG_ON_MULTIPROCESSORS, .multiprocessors = 1};
    uint64_t end = 0;

    sg_engines_start(&e, 2);
    for (unsigned i = 0; i < 3 * SG_PROFILE_POINTS; i++) {
        work.after = end + 5; /* a hole before each */
        uint64_t next = sg_place(&e, 0, &work);
        CHECK_EQUAL(next, end + 15);
        end = next;
        CHECK(e.count <= SG_PROFILE_POINTS);
    }
    work.after = 0;
    work.multiprocessors = 2;
    CHECK(sg_place(&e, 0, &work) <= end + 10);
}

static void check_copies(void) {
    static struct sg_engines e;
    struct sg_work in = {.ns = 100, .engine = SG_ON_COPY_IN};
    struct sg_work out = {.ns = 100, .after = 50, .engine = SG_ON_COPY_OUT};

    sg_engines_start(&e, 1);
    CHECK_EQUAL(sg_place(&e, 10, &in), 110);
    CHECK_EQUAL(sg_place(&e, 10, &in), 210);
    CHECK_EQUAL(sg_place(&e, 10, &out), 150);
    CHECK_EQUAL(sg_place(&e, 400, &out), 500);
}

int main(void) {
    for (uint32_t seed = 0; seed < 200; seed++) {
        check_against_model(seed);
    }
    check_many();
    check_copies();
    return 0;
}
