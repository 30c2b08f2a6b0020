/*
 * What is known of a kernel beyond its handle: a digest that is the same in every process, under
 * which a share keeps what the kernel costs, and whether its code is on the GPU.
 *
 * The driver loads code when it is first needed, which can be inside a launch and take far longer
 * than the kernel. That is no GPU time.
 */
#ifndef DIVVY_CUDA_TIME_KERNEL_H
#define DIVVY_CUDA_TIME_KERNEL_H

#include "cuda/driver.h"

/* Of a kernel that the calling thread is about to launch in the current context. */
struct kernel {
    uint64_t digest; /* 0: it was got in a way that we do not see */
    bool loaded;     /* its code is on the GPU for certain */
};

/* Loads the kernel if the driver can, and describes it. The driver is called. */
DV_HIDDEN struct kernel kernel_load(const void *function);

/* Whether a handle is that of a kernel of no context, as far as we saw where it came from. */
DV_HIDDEN bool kernel_is_contextless(const void *function);

/* Whether the module or library of a kernel was unloaded, as far as we saw where it came from. */
DV_HIDDEN bool kernel_gone(const void *function);

#endif
