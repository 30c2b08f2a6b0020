/*
 * What takes its place in a stream and is not work of the GPU's multiprocessors: host functions,
 * waits, writes that others wait for, migrations. None of it is ever held up. The batch before it
 * ends there, because its time is not ours to charge.
 */
#include "cuda/memory/primary.h"
#include "cuda/time/launch.h"

#define CUDA_HOOK_FOLLOWS(fn, null, stream, in_order, what, parameters, arguments)                 \
    CUresult fn parameters {                                                                       \
        if (launch_counts()) {                                                                     \
            launch_follows(launch_##null(stream));                                                 \
        }                                                                                          \
        return DV_REAL(fn) arguments;                                                              \
    }
#include "abi/generated/cuda_hooks.inc"

/* All streams of the context wait, also those that are made later. */
CUresult cuCtxWaitEvent(CUcontext context, CUevent event) {
    struct home home;
    if (launch_counts() && context_known(context, &home)) {
        flights_follow(home.owner);
    }
    return DV_REAL(cuCtxWaitEvent)(context, event);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event) {
    struct home home;
    if (launch_counts() && green_known(green, &home)) {
        flights_follow(home.owner);
    }
    return DV_REAL(cuGreenCtxWaitEvent)(green, event);
}
