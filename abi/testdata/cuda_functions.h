/* Written by go run ./abi/gen from abi/cuda.yaml; do not edit. */
#ifndef DIVVY_ABI_CUDA_FUNCTIONS_H
#define DIVVY_ABI_CUDA_FUNCTIONS_H

#include "cuda_types.h"

#define CUDA_FN_COUNT 3

#pragma GCC visibility push(default)
CUresult cuMemAlloc(CUdeviceptr_v1 *, unsigned int);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuStreamBeginCapture_v2_ptsz(CUstream, CUstreamCaptureMode);
#pragma GCC visibility pop

#endif
