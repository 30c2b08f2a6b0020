/* Random copies of all kinds, drawn from a number: the same on each side that is given it. */
#ifndef DIVVY_REMOTE_TEST_COPIES_STEPS_H
#define DIVVY_REMOTE_TEST_COPIES_STEPS_H

#include "remote/generated/cuda_decode.h"

#define COPIES_ROOM (3u << 19) /* of each buffer, larger than a chunk */

struct copies_side {
    const struct remote_cuda_driver *call; /* what is tried */
    const struct remote_cuda_driver *see;  /* what reads memory of devices */
    CUdeviceptr device[2];
    unsigned char *pageable[2];
    unsigned char *pinned[2];
    CUarray flat, deep; /* for calls */
    CUarray seen_flat, seen_deep;
    CUstream stream;
    CUcontext context;
    bool maps_nothing; /* host memory has no address of the device */
};

/* Makes memory on a side whose context is current; pinned memory by `call`, all else by `see`. */
void copies_make(struct copies_side *side, const struct remote_cuda_driver *call,
                 const struct remote_cuda_driver *see);
void copies_end(struct copies_side *side);
/* Does what is drawn. */
CUresult copies_step(struct copies_side *side, uint64_t seed);
/* A digest of all memory, when everything is done. */
uint64_t copies_look(const struct copies_side *side);

#endif
