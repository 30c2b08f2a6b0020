#include "cuda/time/capture.h"

#include <sched.h>

#include "cuda/fork.h"
#include "cuda/time/flight.h"
#include "cuda/time/launch.h"

uint32_t captures_under_way;

bool capture_asked(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return DV_CALL(cuStreamIsCapturing, stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUstreamCaptureMode capture_relax(void) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (DV_CALL(cuThreadExchangeStreamCaptureMode, &mode) != CUDA_SUCCESS) {
        mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    }
    return mode;
}

void capture_restore(CUstreamCaptureMode mode) {
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
        DV_CALL(cuThreadExchangeStreamCaptureMode, &mode);
    }
}

/* Either who asks sees that a capture begins, or the capture waits. */
static uint32_t joining, asking;

void capture_joins(void) {
    __atomic_add_fetch(&joining, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&asking, __ATOMIC_SEQ_CST) != 0) {
        sched_yield();
    }
}

void capture_joined(void) {
    __atomic_sub_fetch(&joining, 1, __ATOMIC_SEQ_CST);
}

bool capture_keep_off(void) {
    __atomic_add_fetch(&asking, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&joining, __ATOMIC_SEQ_CST) == 0) {
        return true;
    }
    capture_allow();
    return false;
}

void capture_allow(void) {
    __atomic_sub_fetch(&asking, 1, __ATOMIC_SEQ_CST);
}

static void begin(CUstream stream) {
    struct flight *flight = flight_find(stream);
    if (flight != NULL) {
        flight_break(flight);
    }
    __atomic_add_fetch(&captures_under_way, 1, __ATOMIC_SEQ_CST);
    capture_joins();
}

static CUresult begun(CUresult result) {
    capture_joined();
    if (result != CUDA_SUCCESS) {
        __atomic_sub_fetch(&captures_under_way, 1, __ATOMIC_SEQ_CST);
    }
    return result;
}

/* The call fails in many ways, so a capture has ended only if the stream was being captured and no
 * longer is. */
static CUresult ended(CUresult result, CUstream stream, bool was) {
    if (was && !capture_asked(stream)) {
        __atomic_sub_fetch(&captures_under_way, 1, __ATOMIC_SEQ_CST);
    }
    return result;
}

static bool is_capturing(CUstream stream) {
    return capture_has(stream);
}

#define CUDA_HOOK_CAPTURES(fn, null, stream, in_order, what, parameters, arguments)                \
    CUresult fn parameters {                                                                       \
        if (DV_INNER()) {                                                                          \
            return DV_REAL(fn) arguments;                                                          \
        }                                                                                          \
        begin(launch_##null(stream));                                                              \
        return begun(DV_CALL(fn, ARGUMENTS arguments));                                            \
    }
#define CUDA_HOOK_ENDS(fn, null, stream, in_order, what, parameters, arguments)                    \
    CUresult fn parameters {                                                                       \
        if (DV_INNER()) {                                                                          \
            return DV_REAL(fn) arguments;                                                          \
        }                                                                                          \
        bool was = is_capturing(launch_##null(stream));                                            \
        CUresult result = DV_CALL(fn, ARGUMENTS arguments);                                        \
        return ended(result, launch_##null(stream), was);                                          \
    }
#include "abi/generated/cuda_hooks.inc"

static void captures_forked(void) {
    captures_under_way = joining = asking = 0;
}
ON(forked, captures_forked);
