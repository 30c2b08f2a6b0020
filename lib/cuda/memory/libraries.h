/*
 * Variables of libraries. A library belongs to no context: the driver loads it into each, at once, or
 * when a kernel of it is first needed there. Every context of the process is charged for every
 * library, from when both are there.
 */
#ifndef DIVVY_CUDA_MEMORY_LIBRARIES_H
#define DIVVY_CUDA_MEMORY_LIBRARIES_H

#include "abi/generated/page_layout.h"
#include "cuda/memory/reservation.h"

struct library_load {
    uint64_t bytes;
    struct reservation reservations[DV_PAGE_DEVICES]; /* bytes 0: none */
};

/* Around a driver call that loads a library with so many bytes of variables. */
DV_HIDDEN CUresult library_loading(struct library_load *load, uint64_t bytes);
DV_HIDDEN void library_loaded(struct library_load *load, CUresult result, const void *library);

/* The driver is asked to unload a library, and has answered. */
DV_HIDDEN uint64_t library_unloading(const void *library);
DV_HIDDEN void library_unloaded(const void *library, uint64_t bytes, CUresult result);

/* What one more context takes for all libraries; and how many there are on a device now. */
DV_HIDDEN uint64_t libraries_bytes(void);
DV_HIDDEN void libraries_contexts(unsigned device, unsigned contexts);

#endif
