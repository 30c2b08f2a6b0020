/* Stream capture: operations become nodes of a graph instead of being done.
 *
 * A recording begins in one stream. Others join it by waiting for an event that was recorded in it.
 * Each stream of a recording has an arm: the nodes that its next operation depends on. The graph
 * lock guards recordings, and comes before the work lock. */
#include "simgpu/cuda/capture.h"

#include <stdlib.h>
#include <string.h>

static struct link recordings = {&recordings, &recordings};
static unsigned active; /* recordings that go on; read without the lock */
_Thread_local CUstreamCaptureMode capture_thread_mode __attribute__((tls_model("initial-exec"))) =
    CU_STREAM_CAPTURE_MODE_GLOBAL;

bool capture_set(struct capture *arm, const CUgraphNode *nodes, size_t count) {
    CUgraphNode *before = malloc((count + 1) * sizeof(CUgraphNode));

    if (!before) {
        return false;
    }
    if (count) {
        memcpy(before, nodes, count * sizeof(CUgraphNode));
    }
    free(arm->before);
    arm->before = before;
    arm->count = count;
    return true;
}

bool capture_join(struct capture *arm, const CUgraphNode *nodes, size_t count) {
    CUgraphNode *before = realloc(arm->before, (arm->count + count + 1) * sizeof(CUgraphNode));

    if (!before) {
        return false;
    }
    arm->before = before;
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        while (k < arm->count && before[k] != nodes[i]) {
            k++;
        }
        if (k == arm->count) {
            before[arm->count++] = nodes[i];
        }
    }
    return true;
}

static bool arm_new(CUstream stream, struct recording *recording) {
    struct capture *arm = calloc(1, sizeof *arm);

    if (!arm) {
        return false;
    }
    arm->recording = recording;
    arm->stream = stream;
    link_add(&recording->arms, &arm->of_recording);
    __atomic_store_n(&stream->capture, arm, __ATOMIC_RELAXED);
    return true;
}

static void arm_end(CUstream stream) {
    struct capture *arm = stream->capture;
    struct recording *recording = arm->recording;

    __atomic_store_n(&stream->capture, NULL, __ATOMIC_RELAXED);
    link_remove(&arm->of_recording);
    free(arm->before);
    free(arm);
    if (recording->arms.next != &recording->arms) {
        return;
    }
    link_remove(&recording->of_all);
    __atomic_sub_fetch(&active, 1, __ATOMIC_RELAXED);
    if (recording->own_graph && recording->graph) {
        graph_end(recording->graph);
    }
    free(recording);
}

CUresult capture_add(CUstream stream, const struct stream_op *op) {
    CUgraphNode node;

    pthread_mutex_lock(&graph_lock);
    struct capture *arm = stream->capture;
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!arm->recording->invalid) {
        result = graph_add(arm->recording->graph, arm->before, arm->count, op, &node);
        if (result == CUDA_SUCCESS && !capture_set(arm, &node, 1)) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    pthread_mutex_unlock(&graph_lock);
    return result;
}

CUresult capture_alloc(CUstream stream, struct device *device, size_t bytes, CUdeviceptr *out) {
    struct stream_op op = {.kind = OP_ALLOC};
    CUdeviceptr address;

    SG_TRY(graph_memory_reserve(device, bytes, &address));
    op.memory.address = address;
    op.memory.bytes = bytes;
    SG_TRY(capture_add(stream, &op));
    *out = address;
    return CUDA_SUCCESS;
}

/* Whether a recording forbids unsafe calls in this thread, by its mode and the thread's. */
static bool forbids(const struct recording *recording) {
    bool own = pthread_equal(recording->thread, pthread_self());

    if (recording->invalid || recording->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
        capture_thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return false;
    }
    return own || (recording->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                   capture_thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult capture_allows(CUcontext ctx) {
    CUresult result = CUDA_SUCCESS;

    (void)ctx;
    if (__atomic_load_n(&active, __ATOMIC_RELAXED) == 0) {
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&graph_lock);
    for (struct link *at = recordings.next; at != &recordings; at = at->next) {
        struct recording *recording = CONTAINER(at, struct recording, of_all);
        if (forbids(recording)) {
            recording->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    pthread_mutex_unlock(&graph_lock);
    return result;
}

/* The legacy stream would have to wait for the captured one, which does nothing. */
CUresult capture_implicit(CUstream stream) {
    CUresult result = CUDA_SUCCESS;

    if (__atomic_load_n(&active, __ATOMIC_RELAXED) == 0 || !stream->is_legacy) {
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&graph_lock);
    for (struct link *at = recordings.next; at != &recordings; at = at->next) {
        struct recording *recording = CONTAINER(at, struct recording, of_all);
        if (recording->origin->ctx == stream->ctx &&
            !(recording->origin->flags & CU_STREAM_NON_BLOCKING)) {
            recording->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    pthread_mutex_unlock(&graph_lock);
    return result;
}

/* Another thread may end the capture meanwhile. */
static bool capture_spoil(CUstream stream) {
    pthread_mutex_lock(&graph_lock);
    bool captured = stream->capture;
    if (captured) {
        stream->capture->recording->invalid = true;
    }
    pthread_mutex_unlock(&graph_lock);
    return captured;
}

CUresult capture_blocks(CUstream stream) {
    bool captured = __atomic_load_n(&stream->capture, __ATOMIC_RELAXED) && capture_spoil(stream);
    return captured ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : capture_implicit(stream);
}

void capture_abandon(CUstream stream) {
    pthread_mutex_lock(&graph_lock);
    if (stream->capture) {
        stream->capture->recording->invalid = true;
        arm_end(stream);
    }
    pthread_mutex_unlock(&graph_lock);
}

void capture_forget_event(CUevent event) {
    if (event->capture) {
        free(event->capture->before);
        free(event->capture);
        event->capture = NULL;
    }
}

CUresult capture_record(CUstream stream, CUevent event) {
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

    pthread_mutex_lock(&graph_lock);
    struct capture *arm = stream->capture;
    if (!arm->recording->invalid) {
        struct capture *note = calloc(1, sizeof *note);
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (note && capture_set(note, arm->before, arm->count)) {
            note->recorded = arm->recording->id;
            capture_forget_event(event);
            event->capture = note;
            result = CUDA_SUCCESS;
        } else {
            free(note);
        }
    }
    pthread_mutex_unlock(&graph_lock);
    return result;
}

static struct recording *recording_of(unsigned long long id) {
    for (struct link *at = recordings.next; at != &recordings; at = at->next) {
        struct recording *recording = CONTAINER(at, struct recording, of_all);
        if (recording->id == id) {
            return recording;
        }
    }
    return NULL;
}

static CUresult join(CUstream stream, CUevent event) {
    struct recording *recording = event->capture ? recording_of(event->capture->recorded) : NULL;

    if (!event->capture) {
        stream->capture->recording->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    SG_REQUIRE(recording, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    SG_REQUIRE(!recording->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    SG_REQUIRE(!stream->is_legacy, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (stream->capture && stream->capture->recording != recording) {
        stream->capture->recording->invalid = recording->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (!stream->capture && !arm_new(stream, recording)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return capture_join(stream->capture, event->capture->before, event->capture->count)
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult capture_wait(CUstream stream, CUevent event) {
    pthread_mutex_lock(&graph_lock);
    CUresult result = join(stream, event);
    pthread_mutex_unlock(&graph_lock);
    return result;
}

CUresult capture_begin(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                       const CUgraphNode *before, size_t count) {
    SG_REQUIRE((unsigned)mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(!stream->is_legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SG_REQUIRE(!stream->capture, CUDA_ERROR_ILLEGAL_STATE);
    struct recording *recording = calloc(1, sizeof *recording);
    if (!recording) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *recording = (struct recording){.id = sg_new_id(),
                                    .graph = graph ? graph : graph_new(),
                                    .own_graph = !graph,
                                    .origin = stream,
                                    .mode = mode,
                                    .thread = pthread_self()};
    link_init(&recording->arms);
    pthread_mutex_lock(&graph_lock);
    link_add(&recordings, &recording->of_all);
    __atomic_add_fetch(&active, 1, __ATOMIC_RELAXED);
    bool ok = recording->graph && arm_new(stream, recording);
    if (ok && !capture_set(stream->capture, before, count)) {
        arm_end(stream);
        ok = false;
    }
    pthread_mutex_unlock(&graph_lock);
    return ok ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- the end ---- */

static bool depended_on(CUgraph graph, const struct CUgraphNode_st *node) {
    for (struct link *at = graph->nodes.next; at != &graph->nodes; at = at->next) {
        if (node_depends(CONTAINER(at, struct CUgraphNode_st, of_graph), node)) {
            return true;
        }
    }
    return false;
}

/* An arm is joined when something else comes after its last nodes, or the origin has them too. */
static bool joined(const struct capture *arm, const struct capture *origin) {
    for (size_t i = 0; i < arm->count; i++) {
        bool at_end = false;
        for (size_t k = 0; k < origin->count; k++) {
            at_end |= origin->before[k] == arm->before[i];
        }
        if (!at_end && !depended_on(arm->recording->graph, arm->before[i])) {
            return false;
        }
    }
    return true;
}

/* Ends the arms of all streams but the origin; false where one was not joined. */
static bool end_arms(CUstream origin) {
    struct recording *recording = origin->capture->recording;
    bool all = true;

    for (struct link *at = recording->arms.next, *next; at != &recording->arms; at = next) {
        struct capture *arm = CONTAINER(at, struct capture, of_recording);
        next = at->next;
        if (arm->stream == origin) {
            continue;
        }
        all &= joined(arm, origin->capture);
        arm_end(arm->stream);
    }
    return all;
}

static CUresult finish(CUstream stream, CUgraph *out) {
    struct recording *recording = stream->capture->recording;
    CUresult result = CUDA_SUCCESS;

    SG_REQUIRE(recording->origin == stream, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    SG_REQUIRE(recording->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
                   pthread_equal(recording->thread, pthread_self()),
               CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    if (!end_arms(stream)) {
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
    if (recording->invalid) {
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (result == CUDA_SUCCESS) {
        *out = recording->graph;
        recording->graph = NULL;
    } else {
        *out = NULL;
    }
    arm_end(stream);
    return result;
}

CUresult capture_end(CUstream stream, CUgraph *out) {
    CUresult result = CUDA_ERROR_ILLEGAL_STATE;
    pthread_mutex_lock(&graph_lock);
    if (stream->capture) {
        result = finish(stream, out);
    }
    pthread_mutex_unlock(&graph_lock);
    return result;
}
