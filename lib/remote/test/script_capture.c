#include "remote/test/script.h"

#include "test/check.h"

/* What the capture of a stream says of itself. */
static void say_info(struct script *s, CUstream stream) {
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)9;
    const CUgraphNode *before = NULL;
    const CUgraphEdgeData *edges = NULL;
    CUgraph graph = NULL;
    cuuint64_t id = 0;
    size_t count = 0;
    CUgraphNodeType type;
    int result;

    if (script_draw(s, 2)) {
        result = cu.cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &before, &count);
    } else {
        result =
            cu.cuStreamGetCaptureInfo_v3(stream, &status, &id, &graph, &before, &edges, &count);
    }
    fprintf(s->out, "info %d %d %d %d %zu %d:", result, status, id != 0, graph != NULL, count,
            edges != NULL);
    for (size_t i = 0; result == 0 && before && i < count; i++) {
        result = cu.cuGraphNodeGetType(before[i], &type);
        fprintf(s->out, " %d/%d", result, type);
    }
    if (count && script_draw(s, 4) == 0) {
        CUgraphNode one = before[script_draw(s, count)];
        result = cu.cuStreamUpdateCaptureDependencies(stream, &one, 1, 1);
        fprintf(s->out, " set %d", result);
    }
    fprintf(s->out, "\n");
}

static void work(struct script *s, CUstream one, CUstream other) {
    CUstream stream = script_draw(s, 3) ? one : other;
    CUdeviceptr to = s->memory[0] + 64 * script_draw(s, 32);
    int result;

    switch (script_draw(s, 7)) {
    case 0:
        result = cu.cuMemsetD32Async(to, (unsigned)script_draw(s, 256), 16, stream);
        break;
    case 1:
        result =
            (int)(s->has_functions ? cu.cuLaunchHostFunc(stream, script_call, s) : CUDA_SUCCESS);
        break;
    case 2:
        result = cu.cuEventRecord(s->events[0], one);
        break;
    case 3:
        result = cu.cuStreamWaitEvent(other, s->events[0], 0);
        break;
    case 4:
        result = cu.cuMemcpyDtoDAsync_v2(to, s->memory[1], 32, stream);
        break;
    case 5:
        result = cu.cuEventRecord(s->events[1], other);
        break;
    default:
        result = cu.cuStreamWaitEvent(one, s->events[1], 0);
    }
    fprintf(s->out, "captured %d\n", result);
}

void script_capture(struct script *s, unsigned graph) {
    unsigned first = (unsigned)script_draw(s, SCRIPT_STREAMS);
    CUstream one = s->streams[first], other = s->streams[(first + 1) % SCRIPT_STREAMS];
    CUstreamCaptureMode mode = (CUstreamCaptureMode)script_draw(s, 4);
    CUdeviceptr memory;
    CUgraph made = NULL;

    int result = cu.cuStreamBeginCapture_v2(one, mode);
    fprintf(s->out, "capture %d: %d\n", mode, result);
    for (uint64_t i = script_draw(s, 10); i > 0; i--) {
        work(s, one, other);
        if (script_draw(s, 3) == 0) {
            say_info(s, script_draw(s, 2) ? one : other);
        }
    }
    if (script_draw(s, 8) == 0) {
        /* What is not safe meanwhile. */
        result = cu.cuMemAlloc_v2(&memory, 64);
        fprintf(s->out, "allocation %d\n", result);
        if (result == CUDA_SUCCESS) {
            cu.cuMemFree_v2(memory);
        }
    }
    result = cu.cuStreamEndCapture(one, &made);
    fprintf(s->out, "captured %d %d\n", result, made != NULL);
    s->graphs[graph] = result == CUDA_SUCCESS ? made : NULL;
    /* An arm that was not joined may go on. */
    made = NULL;
    fprintf(s->out, "other %d\n", cu.cuStreamEndCapture(other, &made));
}
