/*
 * Control daemons of the simulated driver's MPS.
 */
#ifndef DIVVY_CUDA_TEST_CONTROL_H
#define DIVVY_CUDA_TEST_CONTROL_H

#include "cuda/test/sim.h"

struct control {
    char pipe[96]; /* a directory */
    pid_t daemon;
};

/* Starts a daemon without limits of its own, which sees what `visible` names for CUDA. It ends with
 * the test. */
void control_begin(struct control *control, const char *visible);

/* Kills it. */
void control_end(struct control *control);

/* Makes a tenant's page one of the daemon's clients, beside the flags that it has. */
void control_serve(struct setting *setting, const struct control *control, uint32_t flags,
                   uint32_t cores);

#endif
