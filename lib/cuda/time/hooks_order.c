/*
 * Functions that put something into a stream that is not work of the multiprocessors: host
 * functions, waits, writes that others wait for. None of them is ever delayed, except while the share
 * is suspended. The batch before it ends there, because the time that such a thing takes is not
 * charged. A wait can make the stream part of a capture.
 *
 * Migrations, which are not work either, and wait for the share's turn.
 *
 * Records of events, for which the GPU takes about as long as for the smallest launch.
 *
 * And functions that make streams for which the legacy stream is a barrier.
 */
#include "cuda/memory/primary.h"
#include "cuda/memory/swap.h"
#include "cuda/time/capture.h"
#include "cuda/time/launch.h"
#include "cuda/time/named.h"
#include "cuda/time/turns.h"

#define CUDA_HOOK_FOLLOWS(fn, null, stream, in_order, what, parameters, arguments)                 \
    CUresult fn parameters {                                                                       \
        if (!launch_counts()) {                                                                    \
            return DV_REAL(fn) arguments;                                                          \
        }                                                                                          \
        turns_pause();                                                                             \
        launch_follows(launch_##null(stream));                                                     \
        bool joins = capture_possible();                                                           \
        if (joins) {                                                                               \
            capture_joins();                                                                       \
        }                                                                                          \
        CUresult result = DV_CALL(fn, ARGUMENTS arguments);                                        \
        if (joins) {                                                                               \
            capture_joined();                                                                      \
        }                                                                                          \
        return result;                                                                             \
    }
/* A function that moves memory waits for the share's turn. */
#define MOVED(fn, stream, prepare, arguments)                                                      \
    struct launch moving;                                                                          \
    prepare;                                                                                       \
    if (!launch_counts()) {                                                                        \
        return DV_REAL(fn) arguments;                                                              \
    }                                                                                              \
    launch_follows(stream);                                                                        \
    CUresult result = launch_passes(&moving, stream);                                              \
    if (result == CUDA_SUCCESS) {                                                                  \
        NAMED(&moving, arguments);                                                                 \
        result = DV_CALL(fn, ARGUMENTS arguments);                                                 \
    }                                                                                              \
    launch_end(&moving, result);                                                                   \
    return result;

#define CUDA_HOOK_MOVES(fn, null, stream, in_order, what, parameters, arguments)                   \
    CUresult fn parameters {                                                                       \
        MOVED(fn, launch_##null(stream), (void)0, arguments)                                       \
    }
/* One that moves managed memory, or says who may use it. */
#define told(address) (address) = swap_told(address)
#define told_all(addresses, count) (addresses) = swap_told_all(addresses, &(count))
#define CUDA_HOOK_MIGRATES(fn, null, stream, in_order, what, parameters, arguments)                \
    CUresult fn parameters {                                                                       \
        MOVED(fn, launch_##null(stream), if (swaps() && !DV_INNER()) { what; }, arguments)         \
    }
/* A function that records an event. */
#define CUDA_HOOK_RECORDS(fn, null, stream, in_order, what, parameters, arguments)                 \
    CUresult fn parameters {                                                                       \
        struct launch launch;                                                                      \
        if (!launch_counts()) {                                                                    \
            return DV_REAL(fn) arguments;                                                          \
        }                                                                                          \
        CUresult result = launch_records(&launch, launch_##null(stream));                          \
        if (result == CUDA_SUCCESS) {                                                              \
            result = DV_CALL(fn, ARGUMENTS arguments);                                             \
        }                                                                                          \
        launch_end(&launch, result);                                                               \
        return result;                                                                             \
    }
#include "abi/generated/cuda_hooks.inc"

/* Makes a context current for a moment. False where it is already, or cannot be: then `fits` says which. */
static bool visit(CUcontext context, bool *fits) {
    CUcontext now = NULL;
    *fits = DV_CALL(cuCtxGetCurrent, &now) == CUDA_SUCCESS && now == context;
    if (*fits) {
        return false;
    }
    *fits = DV_CALL(cuCtxPushCurrent_v2, context) == CUDA_SUCCESS;
    return *fits;
}

/* Whatever the streams of the context have comes before the event, which is of none of them. So its time is charged to the legacy
 * stream, and no events of ours in that stream measure it. */
CUresult cuCtxRecordEvent(CUcontext context, CUevent event) {
    struct launch launch;
    struct home home;
    bool fits;
    if (!launch_counts() || !context_known(context, &home)) {
        return DV_REAL(cuCtxRecordEvent)(context, event);
    }
    bool visits = visit(context, &fits);
    if (!fits) {
        return DV_CALL(cuCtxRecordEvent, context, event);
    }
    CUresult result = launch_records_apart(&launch);
    if (result == CUDA_SUCCESS) {
        result = DV_CALL(cuCtxRecordEvent, context, event);
    }
    launch_end(&launch, result);
    if (visits) {
        DV_CALL(cuCtxPopCurrent_v2, &context);
    }
    return result;
}

/* All streams of the context wait, also those that are made later. */
CUresult cuCtxWaitEvent(CUcontext context, CUevent event) {
    struct home home;
    if (launch_counts() && context_known(context, &home)) {
        flights_follow(home.owner);
    }
    return DV_REAL(cuCtxWaitEvent)(context, event);
}

static bool is_blocking(unsigned flags) {
    return (flags & CU_STREAM_NON_BLOCKING) == 0;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    if (!DV_INNER() && is_blocking(flags)) {
        flights_block();
    }
    return DV_REAL(cuStreamCreate)(stream, flags);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    if (!DV_INNER() && is_blocking(flags)) {
        flights_block();
    }
    return DV_REAL(cuStreamCreateWithPriority)(stream, flags, priority);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event) {
    struct home home;
    if (launch_counts() && green_known(green, &home)) {
        flights_follow(home.owner);
    }
    return DV_REAL(cuGreenCtxWaitEvent)(green, event);
}
