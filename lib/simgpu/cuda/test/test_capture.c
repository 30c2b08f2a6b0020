/* Stream capture and its errors. */
#include "simgpu/cuda/test/cuda.h"

#include <pthread.h>

static unsigned word_at(CUdeviceptr address) {
    unsigned word;

    OK(cuMemcpyDtoH_v2(&word, address, 4));
    return word;
}

static void check_fork_and_join(CUstream s, CUstream t) {
    CUstreamCaptureStatus status;
    CUgraph graph;
    CUgraphExec exec;
    CUevent fork, join;
    CUdeviceptr a, inside;
    size_t count = 0;

    OK(cuMemAlloc_v2(&a, 64));
    OK(cuMemsetD8_v2(a, 0, 64));
    OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
    OK(cuStreamIsCapturing(s, &status));
    CHECK_EQUAL(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuMemsetD32Async(a, 1, 1, s));
    OK(cuMemAllocAsync(&inside, 1000, s));
    OK(cuMemsetD32Async(inside, 4, 1, s));
    OK(cuEventRecord(fork, s));
    OK(cuStreamWaitEvent(t, fork, 0));
    OK(cuMemcpyDtoDAsync_v2(a + 4, inside, 4, t));
    OK(cuda_busy(t, 1000));
    OK(cuEventRecord(join, t));
    FAILS(cuEventQuery(join), CUDA_ERROR_CAPTURED_EVENT);
    OK(cuStreamWaitEvent(s, join, 0));
    OK(cuMemFreeAsync(inside, s));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuStreamIsCapturing(t, &status));
    CHECK_EQUAL(status, CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuGraphGetNodes(graph, NULL, &count));
    CHECK_EQUAL(count, 6);
    OK(cuGraphGetEdges(graph, NULL, NULL, &count));
    /* fill, alloc, fill in a row; the copy after them; the kernel after it; the free after both
     * arms */
    CHECK_EQUAL(count, 6);
    CHECK_EQUAL(word_at(a), 0);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        OK(cuGraphLaunch(exec, s));
    }
    OK(cuStreamSynchronize(s));
    CHECK_EQUAL(word_at(a), 1);
    CHECK_EQUAL(word_at(a + 4), 4);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuDeviceGraphMemTrim(0));
    CHECK_EQUAL(cuda_true(SG_GRAPH), 0);
    OK(cuEventRecord(join, t));
    OK(cuEventSynchronize(join));
    OK(cuEventDestroy_v2(fork));
    OK(cuEventDestroy_v2(join));
    OK(cuMemFree_v2(a));
}

static void check_invalid(CUstream s, CUstream t) {
    CUgraph graph = (CUgraph)1;
    CUdeviceptr a;
    CUevent e, early;

    OK(cuEventCreate(&e, 0));
    OK(cuEventCreate(&early, 0));
    OK(cuEventRecord(early, t));
    FAILS(cuStreamEndCapture(s, &graph), CUDA_ERROR_ILLEGAL_STATE);
    FAILS(cuStreamBeginCapture_v2(NULL, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    /* Waiting for a captured stream, and then everything in it. */
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    FAILS(cuda_busy(s, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    FAILS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(graph == NULL);
    /* What is unsafe anywhere in the process. */
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(cuMemAlloc_v2(&a, 1), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    FAILS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(cuEventQuery(early), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    FAILS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(cuEventSynchronize(early), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    FAILS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventSynchronize(early));
    OK(cuMemAlloc_v2(&a, 1));
    OK(cuMemFree_v2(a));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphDestroy(graph));
    /* An arm that nobody joined; an event from outside. */
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(t, e, 0));
    OK(cuda_busy(t, 1));
    FAILS(cuStreamEndCapture(t, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    FAILS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    OK(cuStreamSynchronize(t));
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(cuStreamWaitEvent(s, early, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    FAILS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuEventDestroy_v2(e));
    OK(cuEventDestroy_v2(early));
}

/* The legacy stream would have to wait for a blocking stream that is captured. */
static void check_implicit(void) {
    CUstream blocking;
    CUgraph graph;

    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(cuda_busy(NULL, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    FAILS(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuda_busy(NULL, 1));
    OK(cuStreamDestroy_v2(blocking));
}

static void *from_another_thread(void *stream) {
    CUgraph graph;
    CUdeviceptr a;
    CUcontext ctx;

    FAILS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    OK(cuStreamGetCtx(stream, &ctx));
    OK(cuCtxSetCurrent(ctx));
    /* A capture of one thread only does not concern the others. */
    OK(cuMemAlloc_v2(&a, 1));
    OK(cuMemFree_v2(a));
    return NULL;
}

/* A thread that takes responsibility may do what a capture forbids, and is told what it did
   before. */
static void check_exchange(CUstream s) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUgraph graph;
    CUevent e;

    OK(cuEventCreate(&e, 0));
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK_EQUAL(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuEventQuery(e));
    OK(cuEventSynchronize(e));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK_EQUAL(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphDestroy(graph));
    mode = (CUstreamCaptureMode)7;
    FAILS(cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_VALUE);
    OK(cuEventDestroy_v2(e));
}

static void check_threads(CUstream s) {
    pthread_t thread;
    CUgraph graph;

    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK_EQUAL(pthread_create(&thread, NULL, from_another_thread, s), 0);
    pthread_join(thread, NULL);
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphDestroy(graph));
}

int main(void) {
    CUstream s, t;

    cuda_start(NULL);
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    cuda_kernel("divvy_busy_ns");
    check_fork_and_join(s, t);
    check_invalid(s, t);
    check_implicit();
    check_exchange(s);
    check_threads(s);
    return 0;
}
