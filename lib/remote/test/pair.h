/* Exercises on a driver that is loaded: each runs in two processes, directly in one and through client and worker in
 * the other, and both must see the same. */
#ifndef DIVVY_REMOTE_TEST_PAIR_H
#define DIVVY_REMOTE_TEST_PAIR_H

#include "remote/test/exercise.h"

struct pair {
    const struct exercise_entry *entries;
    const struct exercise_world *world;
    void (*start)(void);               /* first thing in each process */
    void (*build)(const char *name);   /* before each draw of a call */
    void (*unbuild)(const char *name); /* after it */
    const char *const *left_out;       /* names, or beginnings with a star, and NULL at their end */
};

/* A value: in each eighth of the draws one below this bound, of which 1 gives 0, or with PAIR_POWER a power of two below 2^22. */
#define PAIR_POWER 0
uint64_t pair_draw_value(uint64_t drawn, const unsigned bounds[8]);

/* Loads a library of the simulated driver, for functions of a table. */
void pair_load(const char *file);
/* Finds a function of it, NULL if there is none. */
void *pair_find(const char *name);
/* Finds one that has to be there. */
void pair_found(void *to, const char *name);

/* Runs DRAWS draws, or so many, of all exercises or of that called ONLY; says what differs, and how many calls
 * succeeded once. Fails if anything differs, or if fewer calls succeed. */
void pair_run(const struct pair *pair, uint64_t draws, unsigned long successes);

#endif
