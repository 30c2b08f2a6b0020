/* The worker's regions, for the records about them. The executor calls these. */
#ifndef DIVVY_REMOTE_REGIONS_H
#define DIVVY_REMOTE_REGIONS_H

#include "remote/worker/copies.h"

/* Has the driver know memory, if it does not. False if it will not. */
bool remote_pin(const struct remote_cuda_driver *cuda, void *at, uint64_t size);

/* Maps what a descriptor leads to, which belongs to the region or is closed, and tells the device's address of it. */
CUresult remote_region_add(const struct remote_cuda_driver *cuda, int file, uint64_t number,
                           uint64_t size, CUdeviceptr *device);
/* Maps it elsewhere: at an address of the client's choice, where it can. */
CUresult remote_region_move(const struct remote_cuda_driver *cuda, uint64_t number, uint64_t wish,
                            CUdeviceptr *device);

/* A region that no record can name any more, but which the GPU may still use. */
struct remote_region_left {
    void *at;
    uint64_t size;
};
bool remote_region_take(uint64_t number, struct remote_region_left *left);

#endif
