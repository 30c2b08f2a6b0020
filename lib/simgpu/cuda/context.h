/* The life of a context, for ordinary and primary ones. */
#ifndef SIMGPU_CUDA_CONTEXT_H
#define SIMGPU_CUDA_CONTEXT_H

#include "simgpu/cuda/driver.h"

/* Makes the zeroed structure a usable context; takes the device's overhead with the first one. */
CUresult context_begin(CUcontext ctx, struct device *device, unsigned flags);
/* Ends its work and frees its memory; the structure stays. */
void context_finish(CUcontext ctx);
/* code.c: the part of context_finish that concerns code and local memory; the memory lock. */
void code_end_context(CUcontext ctx);
/* library.c: what libraries have in a context that ends. */
void libraries_end_context(CUcontext ctx);

#endif
