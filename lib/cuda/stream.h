/*
 * What an allocation in a stream's order has to know of the stream.
 */
#ifndef DIVVY_CUDA_STREAM_H
#define DIVVY_CUDA_STREAM_H

#include "cuda/context.h"

/* The GPU and context of a stream; the default streams are those of the current context. */
DV_HIDDEN CUresult stream_home(CUstream stream, struct home *home);

/* Whether work given to the stream is being captured into a graph; _ptsz with the meaning that NULL
 * has for a default stream per thread. Waits for nothing and ends no capture. */
DV_HIDDEN bool stream_captured(CUstream stream);
DV_HIDDEN bool stream_captured_ptsz(CUstream stream);

#endif
