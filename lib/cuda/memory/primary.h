#ifndef DIVVY_CUDA_MEMORY_PRIMARY_H
#define DIVVY_CUDA_MEMORY_PRIMARY_H

#include "cuda/context.h"

/* Where the memory of a green context goes, and with it the time of its streams: that of its GPU's
 * primary context. False if we did not see it made. Asks nobody. */
DV_HIDDEN bool green_known(CUgreenCtx green, struct home *home);

#endif
