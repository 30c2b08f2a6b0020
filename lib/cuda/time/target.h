/*
 * Where a launch goes that waits, as it was when the wait began. Meanwhile the program may end the
 * stream in another thread, and no dead handle may reach the driver.
 */
#ifndef DIVVY_CUDA_TIME_TARGET_H
#define DIVVY_CUDA_TIME_TARGET_H

#include "cuda/context.h"
#include "cuda/stream.h"
#include "cuda/time/flight.h"

struct target {
    CUstream stream;
    uint32_t ends;
    bool green; /* of a green context, whose streams stay handles when it ends */
};

static inline struct target target_of(const struct flight *flight) {
    return (struct target){.stream = flight->stream,
                           .ends = flight_ends(flight),
                           .green = context_is_green(flight->context)};
}

/* What a launch answers whose stream has ended: default streams end with their context. */
static inline CUresult target_answer(const struct target *target) {
    if (target->green) {
        return CUDA_SUCCESS; /* the driver has the answer */
    }
    return stream_is_default(target->stream) ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                             : CUDA_ERROR_INVALID_HANDLE;
}

#endif
