/*
 * Synchronisation. At these moments the driver takes memory back from pools, frees that wait for a
 * stream are known to be done, and so is the work that the GPU was given. A call costs one load for
 * each of these of which there is nothing.
 */
#include "cuda/memory/limbo.h"
#include "cuda/memory/pool.h"
#include "cuda/stream.h"
#include "cuda/time/launch.h"
#include "cuda/time/turns.h"

static void pause_watched(void) {
    if (launch_watched()) {
        turns_pause();
    }
}

static CUresult stream_done(CUresult result, CUstream stream) {
    if (result == CUDA_SUCCESS) {
        limbo_stream_done(stream);
        pools_synchronised();
    }
    return result;
}

/* The stream that NULL means to limbo: the context's in plain functions, the calling thread's own
 * in those that end in _ptsz. */
static CUstream limbo_own(CUstream stream) {
    return launch_own(stream);
}
static CUstream limbo_legacy(CUstream stream) {
    return stream;
}

/* A function that waits for `stream`. */
#define CUDA_HOOK_WAITS(fn, which, stream, in_order, what, parameters, arguments)                  \
    CUresult fn parameters {                                                                       \
        struct wait wait;                                                                          \
        if (DV_INNER()) {                                                                          \
            return DV_REAL(fn) arguments;                                                          \
        }                                                                                          \
        if (!launch_watched()) {                                                                   \
            return stream_done(DV_CALL(fn, stream), limbo_##which(stream));                        \
        }                                                                                          \
        turns_pause();                                                                             \
        launch_waits(&wait, launch_##which(stream));                                               \
        uint64_t since = launch_blocks();                                                          \
        CUresult result = DV_CALL(fn, stream);                                                     \
        launch_blocked(since, false);                                                              \
        launch_waited(&wait, result);                                                              \
        return stream_done(result, limbo_##which(stream));                                         \
    }

/* A function that asks whether `stream` is done; programs ask it over and over. */
#define CUDA_HOOK_ASKS(fn, which, stream, in_order, what, parameters, arguments)                   \
    CUresult fn parameters {                                                                       \
        struct wait wait;                                                                          \
        if (!launch_counts()) {                                                                    \
            return DV_REAL(fn) arguments;                                                          \
        }                                                                                          \
        turns_pause();                                                                             \
        launch_waits(&wait, launch_##which(stream));                                               \
        CUresult result = DV_CALL(fn, stream);                                                     \
        launch_waited(&wait, result);                                                              \
        return result;                                                                             \
    }

/* In a green context the driver waits only for that one's work, in a primary one for all. */
static void context_done(CUresult result, const struct home *home, CUcontext green, bool watched) {
    if (result != CUDA_SUCCESS) {
        return;
    }
    if (watched) {
        flights_finish(home->owner, green);
    }
    if (green == NULL) {
        limbo_context_done(home->owner);
    }
    pools_synchronised();
}

CUresult cuCtxSynchronize(void) {
    struct home home;
    if (DV_INNER()) {
        return DV_REAL(cuCtxSynchronize)();
    }
    pause_watched();
    bool watched = launch_watched() && context_current(&home) == CUDA_SUCCESS;
    uint64_t since = 0;
    if (watched) {
        flights_note(home.owner);
        since = launch_blocks();
    }
    dv_depth++;
    CUresult result = DV_REAL(cuCtxSynchronize)();
    dv_depth--;
    if (watched) {
        launch_blocked(since, false);
    }
    if (watched || (result == CUDA_SUCCESS && context_current(&home) == CUDA_SUCCESS)) {
        context_done(result, &home, context_current_green(), watched);
    }
    return result;
}

CUresult cuCtxSynchronize_v2(CUcontext context) {
    struct home home;
    if (DV_INNER()) {
        return DV_REAL(cuCtxSynchronize_v2)(context);
    }
    bool known = context_known(context, &home), watched = known && launch_watched();
    uint64_t since = 0;
    if (watched) {
        flights_note(home.owner);
        since = launch_blocks();
    }
    CUresult result = DV_CALL(cuCtxSynchronize_v2, context);
    if (watched) {
        launch_blocked(since, false);
    }
    if (known) {
        context_done(result, &home, context_is_green(context) ? context : NULL, watched);
    }
    return result;
}

CUresult cuEventSynchronize(CUevent event) {
    bool watched = launch_counts();
    if (watched) {
        turns_pause();
    }
    uint64_t since = watched ? launch_blocks() : 0;
    CUresult result = DV_CALL(cuEventSynchronize, event);
    if (watched) {
        launch_blocked(since, false);
    }
    if (result == CUDA_SUCCESS && !DV_INNER()) {
        if (launch_watched()) {
            launch_looked();
        }
        pools_synchronised();
    }
    return result;
}

CUresult cuEventQuery(CUevent event) {
    bool watched = launch_counts();
    if (watched) {
        turns_pause();
    }
    CUresult result = DV_CALL(cuEventQuery, event);
    if (result == CUDA_SUCCESS && watched) {
        launch_looked();
    }
    return result;
}

/* A function that destroys `stream`. */
#define CUDA_HOOK_DESTROYS(fn, null, stream, in_order, what, parameters, arguments)                \
    CUresult fn parameters {                                                                       \
        if (!DV_INNER()) {                                                                         \
            stream_ends(stream);                                                                   \
        }                                                                                          \
        return DV_REAL(fn) arguments;                                                              \
    }
#include "abi/generated/cuda_hooks.inc"
