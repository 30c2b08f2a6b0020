#include "cuda/time/capture.h"

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

static void begin(CUstream stream) {
    struct flight *flight = flight_find(stream);
    if (flight != NULL) {
        flight_break(flight);
    }
    __atomic_add_fetch(&captures_under_way, 1, __ATOMIC_SEQ_CST);
}

static CUresult begun(CUresult result) {
    if (result != CUDA_SUCCESS) {
        __atomic_sub_fetch(&captures_under_way, 1, __ATOMIC_SEQ_CST);
    }
    return result;
}

/* Only what was being captured and is no longer has ended: this call fails in many ways. */
static CUresult ended(CUresult result, CUstream stream, bool was) {
    if (was && !capture_asked(stream)) {
        __atomic_sub_fetch(&captures_under_way, 1, __ATOMIC_SEQ_CST);
    }
    return result;
}

static bool is_capturing(CUstream stream) {
    return capture_has(stream);
}

/* A function that begins a capture of `stream`; after its parameters, the arguments for the driver.
 */
#define BEGINS(fn, stream_of, parameters, ...)                                                     \
    CUresult fn parameters {                                                                       \
        if (dv_depth > 0) {                                                                        \
            return DV_REAL(fn)(__VA_ARGS__);                                                       \
        }                                                                                          \
        begin(stream_of(stream));                                                                  \
        return begun(DV_CALL(fn, __VA_ARGS__));                                                    \
    }
#define ENDS(fn, stream_of, parameters, ...)                                                       \
    CUresult fn parameters {                                                                       \
        if (dv_depth > 0) {                                                                        \
            return DV_REAL(fn)(__VA_ARGS__);                                                       \
        }                                                                                          \
        bool was = is_capturing(stream_of(stream));                                                \
        CUresult result = DV_CALL(fn, __VA_ARGS__);                                                \
        return ended(result, stream_of(stream), was);                                              \
    }

BEGINS(cuStreamBeginCapture, launch_legacy, (CUstream stream), stream)
BEGINS(cuStreamBeginCapture_ptsz, launch_own, (CUstream stream), stream)
BEGINS(cuStreamBeginCapture_v2, launch_legacy, (CUstream stream, CUstreamCaptureMode mode), stream,
       mode)
BEGINS(cuStreamBeginCapture_v2_ptsz, launch_own, (CUstream stream, CUstreamCaptureMode mode),
       stream, mode)
BEGINS(cuStreamBeginCaptureToCig, launch_legacy,
       (CUstream stream, CUstreamCigCaptureParams *params), stream, params)
BEGINS(cuStreamBeginCaptureToCig_ptsz, launch_own,
       (CUstream stream, CUstreamCigCaptureParams *params), stream, params)

#define TO_GRAPH_PARAMETERS                                                                        \
    (CUstream stream, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges,       \
     size_t afters, CUstreamCaptureMode mode)
BEGINS(cuStreamBeginCaptureToGraph, launch_legacy, TO_GRAPH_PARAMETERS, stream, graph, after, edges,
       afters, mode)
BEGINS(cuStreamBeginCaptureToGraph_ptsz, launch_own, TO_GRAPH_PARAMETERS, stream, graph, after,
       edges, afters, mode)

#define RECAPTURE_PARAMETERS                                                                       \
    (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback,  \
     void *data)
BEGINS(cuStreamBeginRecaptureToGraph, launch_legacy, RECAPTURE_PARAMETERS, stream, mode, graph,
       callback, data)
BEGINS(cuStreamBeginRecaptureToGraph_ptsz, launch_own, RECAPTURE_PARAMETERS, stream, mode, graph,
       callback, data)

ENDS(cuStreamEndCapture, launch_legacy, (CUstream stream, CUgraph *graph), stream, graph)
ENDS(cuStreamEndCapture_ptsz, launch_own, (CUstream stream, CUgraph *graph), stream, graph)
ENDS(cuStreamEndCaptureToCig, launch_legacy, (CUstream stream), stream)
ENDS(cuStreamEndCaptureToCig_ptsz, launch_own, (CUstream stream), stream)

static void captures_forked(void) {
    captures_under_way = 0;
}
ON(forked, captures_forked);
