/* Captures of streams into graphs, and what spoils them. */
#include "test/api/api.h"

#include <pthread.h>

static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                            CU_STREAM_CAPTURE_MODE_RELAXED};

static void record(CUstream s, CUstream t, CUevent fork, CUevent join, CUdeviceptr a) {
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)77;
    cuuint64_t id = 0;
    CUgraph graph = NULL;
    const CUgraphNode *nodes = NULL;
    size_t count = 77;

    OK(cuMemsetD32Async, a, 1, 1, s);
    OK(cuStreamIsCapturing, s, &status);
    SAME(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuStreamGetCaptureInfo_v2, s, &status, &id, &graph, &nodes, &count);
    TRUE(id != 0 && graph != NULL && count == 1 && nodes);
    OK(cuEventRecord, fork, s);
    OK(cuStreamWaitEvent, t, fork, 0);
    OK(cuMemsetD32Async, a + 8, 3, 1, t);
    SAME(api_fill(a + 16, 4, 2, t), CUDA_SUCCESS);
    OK(cuStreamIsCapturing, t, &status);
    SAME(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuEventRecord, join, t);
    OK(cuStreamWaitEvent, s, join, 0);
    OK(cuMemcpyDtoDAsync_v2, a + 4, a, 4, s);
}

void api_case_captures(void) {
    CUstream s = NULL, t = NULL;
    CUevent fork = NULL, join = NULL;
    CUdeviceptr a = 0;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)77;
    size_t count = 0;

    api_begin();
    api_function("none");
    OK(cuMemAlloc_v2, &a, 64);
    SAME(api_fill(a, 0, 16, NULL), CUDA_SUCCESS);
    OK(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    OK(cuStreamCreate, &t, CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate, &fork, CU_EVENT_DISABLE_TIMING);
    OK(cuEventCreate, &join, CU_EVENT_DISABLE_TIMING);
    OK(cuCtxSynchronize);
    for (size_t i = 0; i < COUNT(modes); i++) {
        OK(cuStreamIsCapturing, s, &status);
        SAME(status, CU_STREAM_CAPTURE_STATUS_NONE);
        OK(cuMemsetD8_v2, a, 0, 64);
        OK(cuCtxSynchronize);
        OK(cuStreamBeginCapture_v2, s, modes[i]);
        record(s, t, fork, join, a);
        OK(cuStreamEndCapture, s, &graph);
        OK(cuStreamIsCapturing, t, &status);
        SAME(status, CU_STREAM_CAPTURE_STATUS_NONE);
        OK(cuGraphGetNodes, graph, NULL, &count);
        SAME(count, 4);
        OK(cuGraphGetEdges, graph, NULL, NULL, &count);
        SAME(count, 4);
        SAME(api_word(a), 0);
        OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
        OK(cuGraphLaunch, exec, s);
        OK(cuGraphLaunch, exec, s);
        OK(cuStreamSynchronize, s);
        TRUE(api_word(a) == 1 && api_word(a + 4) == 1 && api_word(a + 8) == 3);
        TRUE(api_word(a + 16) == 4 && api_word(a + 20) == 4 && api_word(a + 24) == 0);
        OK(cuGraphExecDestroy, exec);
        OK(cuGraphDestroy, graph);
    }
}

/* Ends a capture that is spoilt. */
static void end(CUstream s, CUresult want) {
    CUgraph graph = (CUgraph)7;

    ANSWERS(want, cuStreamEndCapture, s, &graph);
    TRUE(graph == NULL);
    OK(cuStreamSynchronize, s);
}

#define BEGIN(mode) OK(cuStreamBeginCapture_v2, s, mode)

/* Calls that a capture forbids, unless its mode is relaxed. */
static void check_forbidden(CUstream s, CUdeviceptr a, CUevent early) {
    CUgraph graph = NULL;
    CUdeviceptr b = 0;
    char byte;

    BEGIN(modes[0]);
    ANSWERS(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2, s, modes[0]);
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize, s);
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD32Async, a, 1, 1, s);
    end(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    BEGIN(modes[0]);
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2, &b, 1);
    end(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    BEGIN(modes[0]);
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery, early);
    end(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    BEGIN(modes[0]);
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemcpyDtoH_v2, &byte, a, 1);
    end(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    BEGIN(modes[2]);
    OK(cuMemAlloc_v2, &b, 1);
    OK(cuMemFree_v2, b);
    OK(cuEventSynchronize, early);
    OK(cuStreamEndCapture, s, &graph);
    OK(cuGraphDestroy, graph);
}

static void *other_thread(void *stream) {
    CUgraph graph = NULL;

    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cuStreamEndCapture, stream, &graph);
    return NULL;
}

void api_case_capture_errors(void) {
    CUstream s = NULL, t = NULL, blocking = NULL;
    CUgraph graph = NULL;
    CUdeviceptr a = 0;
    CUevent e = NULL, early = NULL;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    pthread_t thread;

    api_begin();
    OK(cuMemAlloc_v2, &a, 64);
    OK(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    OK(cuStreamCreate, &t, CU_STREAM_NON_BLOCKING);
    OK(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
    OK(cuEventCreate, &e, 0);
    OK(cuEventCreate, &early, 0);
    OK(cuEventRecord, early, t);
    OK(cuCtxSynchronize);
    ANSWERS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture, s, &graph);
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2, NULL, modes[0]);
    INVALID(cuStreamBeginCapture_v2, s, (CUstreamCaptureMode)9);
    check_forbidden(s, a, early);
    BEGIN(modes[0]);
    OK(cuEventRecord, e, s);
    ANSWERS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery, e);
    graph = NULL;
    CU(cuStreamEndCapture)(s, &graph); /* whether this spoils the capture is not documented */
    if (graph) {
        OK(cuGraphDestroy, graph);
    }
    BEGIN(modes[0]);
    OK(cuEventRecord, e, s);
    OK(cuStreamWaitEvent, t, e, 0);
    OK(cuMemsetD32Async, a, 1, 1, t);
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture, t, &graph);
    end(s, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    BEGIN(modes[0]);
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent, s, early, 0);
    end(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    BEGIN(modes[1]);
    SAME(pthread_create(&thread, NULL, other_thread, s), 0);
    pthread_join(thread, NULL);
    OK(cuStreamEndCapture, s, &graph);
    OK(cuGraphDestroy, graph);
    OK(cuStreamBeginCapture_v2, blocking, modes[2]);
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD32Async, a, 1, 1, NULL);
    end(blocking, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuThreadExchangeStreamCaptureMode, &mode);
    SAME(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuThreadExchangeStreamCaptureMode, &mode);
    SAME(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    mode = (CUstreamCaptureMode)7;
    INVALID(cuThreadExchangeStreamCaptureMode, &mode);
}
