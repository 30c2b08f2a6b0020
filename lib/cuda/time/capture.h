/*
 * Streams that are being captured into graphs: what they are given is not work yet, must never be
 * delayed, and nothing of ours may come among it.
 */
#ifndef DIVVY_CUDA_TIME_CAPTURE_H
#define DIVVY_CUDA_TIME_CAPTURE_H

#include "cuda/driver.h"

/* Captures of this process under way; never less than there are. */
DV_HIDDEN extern uint32_t captures_under_way;

static inline bool capture_possible(void) {
    return __builtin_expect(__atomic_load_n(&captures_under_way, __ATOMIC_RELAXED) != 0, 0);
}

/* Whether the stream is being captured, or may not be asked now, as the legacy stream during the
 * capture of one that waits for it. */
DV_HIDDEN bool capture_asked(CUstream stream);

static inline bool capture_has(CUstream stream) {
    return capture_possible() && capture_asked(stream);
}

/* Lets the calling thread ask for events while others capture; returns what to restore. */
DV_HIDDEN CUstreamCaptureMode capture_relax(void);
DV_HIDDEN void capture_restore(CUstreamCaptureMode mode);

#endif
