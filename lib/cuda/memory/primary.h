#ifndef DIVVY_CUDA_MEMORY_PRIMARY_H
#define DIVVY_CUDA_MEMORY_PRIMARY_H

#include "cuda/context.h"

/* The home of a green context, which is that of its GPU's primary context. False if we did not see
 * it made. Makes no driver call. */
DV_HIDDEN bool green_known(CUgreenCtx green, struct home *home);

#endif
