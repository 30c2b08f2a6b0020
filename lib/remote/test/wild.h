/* What a program gives the driver that knows no better: numbers, handles of any kind, addresses, and memory with all of them. */
#ifndef DIVVY_REMOTE_TEST_WILD_H
#define DIVVY_REMOTE_TEST_WILD_H

#include <stddef.h>
#include <stdint.h>

#define WILD_AREA 16384u
#define WILD_AREAS 16u

typedef unsigned long long number;

/* What the program has: something of each kind. */
struct wild_world {
    number contexts[2], streams[3], events[2], graphs[2], nodes[2], execs[1], modules[1],
        functions[2], libraries[1], kernels[1], arrays[2], pools[1];
    number memory[2], host;
};
extern struct wild_world wild_world;
/* Memory that the program can read and write, WILD_AREAS of it one behind the other. */
extern unsigned char *wild_areas;

/* Begins the draws of a call: the same seed draws the same. */
void wild_seed(uint64_t seed);
/* Fills the areas. */
void wild_fill(void);
/* A parameter of a type as the description spells it. */
number wild_parameter(const char *type);

#endif
