/*
 * Streams that are being captured into graphs. What they are given is not work yet: it must never
 * be delayed, and no event of ours may be recorded among it.
 */
#ifndef DIVVY_CUDA_TIME_CAPTURE_H
#define DIVVY_CUDA_TIME_CAPTURE_H

#include "cuda/driver.h"

/* Captures under way in this process. May be too high, never too low. */
DV_HIDDEN extern uint32_t captures_under_way;

static inline bool capture_possible(void) {
    return __builtin_expect(__atomic_load_n(&captures_under_way, __ATOMIC_RELAXED) != 0, 0);
}

/* Whether the stream is being captured, or may not be asked now. The legacy stream may not be asked
 * while a stream that waits for it is captured. */
DV_HIDDEN bool capture_asked(CUstream stream);

static inline bool capture_has(CUstream stream) {
    return capture_possible() && capture_asked(stream);
}

/* Around a call by which a stream begins to be captured, or may join a capture. Waits while another
 * thread asks streams what they are doing, which would end a capture. Not in calls of the driver's. */
DV_HIDDEN void capture_joins(void);
DV_HIDDEN void capture_joined(void);

/* Keeps all streams from being captured anew until capture_allow, so that those which are not
 * captured may be asked. False if one begins to be just now. */
DV_HIDDEN bool capture_keep_off(void);
DV_HIDDEN void capture_allow(void);

/* Lets the calling thread ask for events while other threads capture. Returns the mode for
 * capture_restore. */
DV_HIDDEN CUstreamCaptureMode capture_relax(void);
DV_HIDDEN void capture_restore(CUstreamCaptureMode mode);

#endif
