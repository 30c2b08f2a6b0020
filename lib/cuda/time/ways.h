/*
 * How the thread that moves memory reaches a GPU: a context of the program's, and a stream and
 * events of ours in it.
 *
 * We make no context. One is found by a stream into which the program launched, and used until it
 * ends. Whoever ends it waits until the thread is out of it, which takes one call of the driver.
 * Green contexts are left alone, because only one thread may have one current.
 *
 * One thread alone uses these functions.
 */
#ifndef DIVVY_CUDA_TIME_WAYS_H
#define DIVVY_CUDA_TIME_WAYS_H

#include "cuda/driver.h"

#define WAY_MARKS 4u

struct way {
    uint32_t state, inside; /* atomic; the rest is the thread's own while it is inside */
    uint32_t owner;         /* the life of the context */
    CUdevice device;
    CUcontext context;
    CUstream stream;
    CUevent marks[WAY_MARKS];
};

/* Makes the context of a way to a GPU of the share current until way_leave. NULL if there is none.
 */
DV_HIDDEN struct way *way_enter(unsigned number);
DV_HIDDEN void way_leave(struct way *way);

/* Changes whenever a way ends, and its marks with it. */
DV_HIDDEN uint32_t ways_ended(void);

#endif
