/* The entries of stream capture: beginning it, asking about it, changing what comes next. */
#include "simgpu/cuda/capture.h"

/* Both forms of an entry: `name` and the one for the thread's own default stream. PARAMS begin with
 * the stream. */
#define BOTH(name, PARAMS, ...)                                                                    \
    CUresult name PARAMS {                                                                         \
        const bool ptds = false;                                                                   \
        __VA_ARGS__                                                                                \
    }                                                                                              \
    CUresult name##_ptsz PARAMS {                                                                  \
        const bool ptds = true;                                                                    \
        __VA_ARGS__                                                                                \
    }

static CUresult begin(CUstream handle, CUstreamCaptureMode mode, bool ptds) {
    SG_STREAM(stream, handle, ptds);
    return capture_begin(stream, mode, NULL, NULL, 0);
}

BOTH(cuStreamBeginCapture, (CUstream handle),
     return begin(handle, CU_STREAM_CAPTURE_MODE_GLOBAL, ptds);)
BOTH(cuStreamBeginCapture_v2, (CUstream handle, CUstreamCaptureMode mode),
     return begin(handle, mode, ptds);)

static CUresult begin_to_graph(CUstream handle, CUgraph graph, const CUgraphNode *before,
                               size_t count, CUstreamCaptureMode mode, bool ptds) {
    SG_REQUIRE(graph, CUDA_ERROR_INVALID_VALUE);
    SG_STREAM(stream, handle, ptds);
    SG_REQUIRE(handle_given(graph, HANDLE_GRAPH) && (before || count == 0),
               CUDA_ERROR_INVALID_VALUE);
    return capture_begin(stream, mode, graph, before, count);
}

CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph, const CUgraphNode *before,
                                     const CUgraphEdgeData *data, size_t count,
                                     CUstreamCaptureMode mode) {
    (void)data;
    return begin_to_graph(handle, graph, before, count, mode, false);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream handle, CUgraph graph, const CUgraphNode *before,
                                          const CUgraphEdgeData *data, size_t count,
                                          CUstreamCaptureMode mode) {
    (void)data;
    return begin_to_graph(handle, graph, before, count, mode, true);
}

/* What a call wants to know; all but the status may be NULL. */
struct info {
    CUstreamCaptureStatus *status;
    cuuint64_t *id;
    CUgraph *graph;
    const CUgraphNode **before;
    const CUgraphEdgeData **data;
    size_t *count;
};

static CUresult tell(CUstream handle, const struct info *want, bool ptds) {
    SG_REQUIRE(want->status, CUDA_ERROR_INVALID_VALUE);
    SG_STREAM(stream, handle, ptds);
    SG_TRY(capture_implicit(stream));
    pthread_mutex_lock(&graph_lock);
    const struct capture *arm = stream->capture;
    if (!arm) {
        *want->status = CU_STREAM_CAPTURE_STATUS_NONE;
    } else {
        *want->status = arm->recording->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    }
    if (arm) {
        if (want->id) {
            *want->id = arm->recording->id;
        }
        if (want->graph) {
            *want->graph = arm->recording->graph;
        }
        if (want->before) {
            *want->before = arm->before;
        }
        if (want->data) {
            *want->data = NULL;
        }
        if (want->count) {
            *want->count = arm->count;
        }
    }
    pthread_mutex_unlock(&graph_lock);
    return CUDA_SUCCESS;
}

BOTH(cuStreamIsCapturing, (CUstream handle, CUstreamCaptureStatus *status),
     return tell(handle, &(struct info){.status = status}, ptds);)
BOTH(cuStreamGetCaptureInfo, (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id),
     return tell(handle, &(struct info){.status = status, .id = id}, ptds);)
BOTH(cuStreamGetCaptureInfo_v2,
     (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
      const CUgraphNode **before, size_t *count),
     return tell(handle, &(struct info){status, id, graph, before, NULL, count}, ptds);)
BOTH(cuStreamGetCaptureInfo_v3,
     (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
      const CUgraphNode **before, const CUgraphEdgeData **data, size_t *count),
     return tell(handle, &(struct info){status, id, graph, before, data, count}, ptds);)

static CUresult change(CUstream handle, const CUgraphNode *nodes, size_t count, unsigned flags,
                       bool ptds) {
    SG_STREAM(stream, handle, ptds);
    SG_REQUIRE((nodes || count == 0) && flags <= CU_STREAM_SET_CAPTURE_DEPENDENCIES,
               CUDA_ERROR_INVALID_VALUE);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&graph_lock);
    struct capture *arm = stream->capture;
    for (size_t i = 0; arm && i < count; i++) {
        if (!handle_given(nodes[i], HANDLE_NODE) || nodes[i]->graph != arm->recording->graph) {
            result = CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (!arm) {
        result = CUDA_ERROR_ILLEGAL_STATE;
    } else if (result == CUDA_SUCCESS &&
               !(flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES ? capture_set(arm, nodes, count)
                                                             : capture_join(arm, nodes, count))) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&graph_lock);
    return result;
}

BOTH(cuStreamUpdateCaptureDependencies,
     (CUstream handle, CUgraphNode *nodes, size_t count, unsigned int flags),
     return change(handle, nodes, count, flags, ptds);)
BOTH(cuStreamUpdateCaptureDependencies_v2,
     (CUstream handle, CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,
      unsigned int flags),
     (void)data;
     return change(handle, nodes, count, flags, ptds);)

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    SG_READY();
    SG_REQUIRE(mode && (unsigned)*mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    CUstreamCaptureMode before = capture_thread_mode;
    capture_thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

static CUresult end(CUstream handle, CUgraph *out, bool ptds) {
    SG_STREAM(stream, handle, ptds);
    SG_REQUIRE(out, CUDA_ERROR_INVALID_VALUE);
    return capture_end(stream, out);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    return end(stream, graph, false);
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph) {
    return end(stream, graph, true);
}
