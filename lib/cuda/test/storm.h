/* One process of the storm of test_sim_storm.c. */
#ifndef DIVVY_CUDA_TEST_STORM_H
#define DIVVY_CUDA_TEST_STORM_H

#include "cuda/test/setting.h"

#define STORM_TENANTS 2u
#define STORM_USERS 6u     /* processes that use CUDA, of each tenant every second one */
#define STORM_PROCESSES 8u /* the others only pass descriptors on */

struct storm_order {
    uint64_t seed;
    unsigned operations;
};

/* What a process tells at the end of a round. */
struct storm_report {
    unsigned done;
};

struct storm_self {
    unsigned number;
    int control, leash, inbox;
    int mailbox[STORM_PROCESSES];
};

/* Works off orders until the parent ends. Without a tenant, for a process without CUDA. */
void storm_serve(const struct storm_self *self, struct setting *tenant);

/* A number of a sequence that the seed decides. */
uint64_t storm_random(uint64_t *state);

#endif
