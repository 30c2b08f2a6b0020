/* A driver that notes what a launch gives it, and passes it on. */
#ifndef DIVVY_REMOTE_TEST_SPY_H
#define DIVVY_REMOTE_TEST_SPY_H

#include "remote/generated/cuda_decode.h"
#include "remote/launch.h"
#include "remote/layout.h"

/* What the driver was given last. */
extern struct spy {
    unsigned long calls;
    CUfunction function;
    CUstream stream;
    unsigned shape[7];
    bool has_params, has_extra;
    unsigned char bytes[REMOTE_PARAM_BYTES];
    size_t size;
    unsigned count;
    CUlaunchAttribute attributes[REMOTE_MOST_ATTRIBUTES];
} seen;

/* Puts the spy before launches of this driver. */
void spy_begin(struct remote_cuda_driver *spied, const struct remote_cuda_driver *on);

#endif
