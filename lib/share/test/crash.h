/* Kills a process between any two of its instructions and looks what is left of its share.
 *
 * A scenario is a process that prepares itself at full speed, stops, and is then stepped one
 * instruction at a time through what is to be interrupted. The test's own process is its neighbour,
 * with a balance of its own that must stay untouched. */
#ifndef DIVVY_SHARE_TEST_CRASH_H
#define DIVVY_SHARE_TEST_CRASH_H

#include "share/test/tenant.h"

#define CRASH_LIMIT (64 * MIB)
#define CRASH_NEIGHBOUR (6 * MIB) /* charged to the neighbour on GPU 0 from the beginning */

struct scenario {
    const char *name;
    /* Runs in the test's process before the scenario's; may be NULL. */
    void (*neighbour)(const struct tenant *tenant, dv_share *share);
    /* Run in the scenario's process; the first may be NULL. */
    void (*prepare)(dv_share *share);
    /* Runs in the test's process while the scenario's is stopped; may be NULL. */
    void (*meanwhile)(dv_share *share);
    void (*act)(dv_share *share);
    /* Bytes on GPU 0 that belong to the neighbour, CRASH_NEIGHBOUR included, when all is reaped. */
    uint64_t left;
    /* Undoes what the neighbour did, in the test's process; may be NULL. */
    void (*restore)(dv_share *share);
};

extern const struct scenario scenarios[];
extern const size_t scenario_count;

#endif
