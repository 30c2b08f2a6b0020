/*
 * MIG instances on the simulated machine, made and ended by processes of their own.
 */
#ifndef DIVVY_CUDA_TEST_INSTANCE_H
#define DIVVY_CUDA_TEST_INSTANCE_H

#include <stdint.h>

#include "cuda/test/sim.h"

#define INSTANCE_SMALL 19 /* of one slice */
#define INSTANCE_HALF 9   /* of three compute slices and four memory slices */

struct instance {
    unsigned gpu, gi, ci;
    char name[48]; /* for CUDA_VISIBLE_DEVICES */
    uint8_t uuid[16];
};

/* Makes an instance of a profile where the driver likes, with the compute instance that fills it. */
void instance_make(unsigned gpu, unsigned profile, struct instance *instance);

/* Ends it; false while a process uses it. */
bool instance_end(const struct instance *instance);

/* Makes the first share of a tenant one on the instance, with a limit. */
void instance_grant(struct setting *setting, const struct instance *instance, uint64_t total,
                    uint64_t limit);

#endif
