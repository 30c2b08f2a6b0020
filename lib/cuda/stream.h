/*
 * What an allocation in stream order has to know about the stream, and streams that are asked about
 * after the call in which the program named them.
 *
 * The program may destroy a stream in any thread while we remember it. So a remembered stream is
 * held for as long as the driver is asked about it, and the hook of its end waits for that.
 */
#ifndef DIVVY_CUDA_STREAM_H
#define DIVVY_CUDA_STREAM_H

#include "cuda/context.h"

/* Whether the handle means another stream in each context. */
static inline bool stream_is_default(CUstream stream) {
    return stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* The GPU and context of a stream; the default streams are those of the current context.
 * stream_context also returns the driver's handle. */
DV_HIDDEN CUresult stream_home(CUstream stream, struct home *home);
DV_HIDDEN CUresult stream_context(CUstream stream, CUcontext *context, struct home *home);

/* Whether the stream is being captured into a graph. In stream_captured_ptsz NULL means the
 * per-thread default stream. Waits for nothing and ends no capture. */
DV_HIDDEN bool stream_captured(CUstream stream);
DV_HIDDEN bool stream_captured_ptsz(CUstream stream);

/* Remembers a stream that the program has named in this call. */
DV_HIDDEN void stream_remember(CUstream stream);

/* Keeps a remembered stream from ending until stream_release. False if it ends or has ended. */
DV_HIDDEN bool stream_hold(CUstream stream);
DV_HIDDEN void stream_release(CUstream stream);

/* The program is about to destroy a stream. When this returns nobody asks about it any more, and
 * its handle may name another one. */
DV_HIDDEN void stream_ends(CUstream stream);

/* A stream is about to be destroyed, by itself or with its context. */
EVENT(stream_ending, (CUstream stream));

#endif
