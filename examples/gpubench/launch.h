/* Launches of the kernels `busy` and `loop`, on their own or as a graph. */
#ifndef GPUBENCH_LAUNCH_H
#define GPUBENCH_LAUNCH_H

#include "driver.h"
#include "options.h"

/* One kernel of the options' ns, or loops, and grid. */
CUresult launch_busy(const struct options *options, const struct kernels *kernels, CUstream stream);

/* A kernel that takes the options' ns. */
CUresult launch_one(const struct options *options, CUfunction kernel, CUstream stream);

/* An executable graph of `count` such kernels in a row, captured on the stream. */
CUresult capture_busy(const struct options *options, const struct kernels *kernels, uint64_t count,
                      CUstream stream, CUgraphExec *executable);

#endif
