/*
 * What an allocation in stream order has to know about the stream.
 */
#ifndef DIVVY_CUDA_STREAM_H
#define DIVVY_CUDA_STREAM_H

#include "cuda/context.h"

/* The GPU and context of a stream; the default streams are those of the current context. */
DV_HIDDEN CUresult stream_home(CUstream stream, struct home *home);

/* Whether the stream is being captured into a graph. In stream_captured_ptsz NULL means the
 * per-thread default stream. Waits for nothing and ends no capture. */
DV_HIDDEN bool stream_captured(CUstream stream);
DV_HIDDEN bool stream_captured_ptsz(CUstream stream);

#endif
