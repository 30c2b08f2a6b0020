/* What a capture tells of itself. The driver lends lists, which are copied into the answer. */
#include "remote/capture.h"
#include "remote/worker/hand.h"

#include <string.h>

/* Where the driver writes; what it leaves untouched is known afterwards. */
struct info {
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph graph;
    const CUgraphNode *before;
    const CUgraphEdgeData *edges;
    size_t count;
};

#define UNTOUCHED ((void *)REMOTE_UNTOUCHED)

static uint64_t told_of(const struct info *info, uint64_t wanted) {
    uint64_t told = CAPTURE_STATUS;

    told |= info->id != REMOTE_UNTOUCHED ? CAPTURE_ID : 0;
    told |= info->graph != UNTOUCHED ? CAPTURE_GRAPH : 0;
    told |= info->before != UNTOUCHED ? CAPTURE_BEFORE : 0;
    told |= info->edges != UNTOUCHED && info->edges ? CAPTURE_EDGES : 0;
    told |= info->count != REMOTE_UNTOUCHED ? CAPTURE_COUNT : 0;
    return told & wanted;
}

/* Writes the answer's pieces. The list of nodes is translated where the answer's room is. */
static void tell(struct remote_decoder *decoder, const struct info *info, uint64_t wanted) {
    static CUgraphNode nodes[REMOTE_ARRAY_BYTES / 16]; /* of the one executor */
    struct capture_facts facts = {.told = told_of(info, wanted),
                                  .status = (uint64_t)info->status,
                                  .id = info->id,
                                  .graph = (uint64_t)info->graph};

    facts.no_edges = (wanted & CAPTURE_EDGES) && !info->edges;
    if (facts.told & CAPTURE_GRAPH) {
        remote_out_field(decoder, &facts, offsetof(struct capture_facts, graph),
                         REMOTE_KIND_CUgraph);
    }
    facts.count = info->count != REMOTE_UNTOUCHED ? info->count : 0;
    uint64_t there = facts.told & CAPTURE_BEFORE && info->before ? facts.count : 0;
    for (uint64_t i = 0; i < there; i++) {
        nodes[i] = info->before[i];
        remote_out_field(decoder, nodes, i * sizeof *nodes, REMOTE_KIND_CUgraphNode);
    }
    remote_give(decoder, 0, &facts, sizeof facts, false);
    remote_give(decoder, 1, nodes, facts.told & CAPTURE_BEFORE ? facts.count * sizeof *nodes : 0,
                false);
    remote_give(decoder, 2, info->edges,
                facts.told & CAPTURE_EDGES ? facts.count * sizeof *info->edges : 0, false);
}

typedef CUresult ask_capture(const struct remote_cuda_driver *cuda, CUstream stream,
                             uint64_t wanted, struct info *info);

static enum remote_outcome decode(struct remote_decoder *decoder, ask_capture *ask,
                                  bool has_function) {
    struct info info = {.id = REMOTE_UNTOUCHED,
                        .graph = UNTOUCHED,
                        .before = UNTOUCHED,
                        .edges = UNTOUCHED,
                        .count = REMOTE_UNTOUCHED};

    if (!remote_words(decoder, CAPTURE_WORDS)) {
        return REMOTE_GARBLED;
    }
    CUstream stream = (CUstream)remote_handle(decoder, CAPTURE_STREAM, REMOTE_KIND_CUstream);
    uint64_t wanted = decoder->words[CAPTURE_WANTED];
    if (decoder->head.given != 7) {
        return REMOTE_GARBLED;
    }
    if (!remote_taken(decoder, has_function)) {
        return remote_not_called(decoder);
    }
    CUresult result = ask(decoder->cuda, stream, wanted, &info);
    if (result == CUDA_SUCCESS && info.count != REMOTE_UNTOUCHED &&
        info.count > REMOTE_ARRAY_BYTES / 16) {
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
    remote_answer(decoder, (int32_t)result);
    if (result == CUDA_SUCCESS) {
        tell(decoder, &info, wanted);
    }
    return remote_finish(decoder);
}

/* What the program did not give is not given; but for the count, without which no list can be copied. */
#define GIVEN(fact, member) (wanted & CAPTURE_##fact ? &info->member : NULL)
#define COUNT (wanted & (CAPTURE_COUNT | CAPTURE_BEFORE | CAPTURE_EDGES) ? &info->count : NULL)

#define INFO(name, ...)                                                                            \
    static CUresult ask_##name(const struct remote_cuda_driver *cuda, CUstream stream,             \
                               uint64_t wanted, struct info *info) {                               \
        return cuda->name(stream, __VA_ARGS__, COUNT);                                             \
    }                                                                                              \
    enum remote_outcome remote_hand_##name(struct remote_decoder *decoder) {                       \
        return decode(decoder, ask_##name, decoder->cuda->name != NULL);                           \
    }

INFO(cuStreamGetCaptureInfo_v2, GIVEN(STATUS, status), GIVEN(ID, id), GIVEN(GRAPH, graph),
     GIVEN(BEFORE, before))
INFO(cuStreamGetCaptureInfo_v2_ptsz, GIVEN(STATUS, status), GIVEN(ID, id), GIVEN(GRAPH, graph),
     GIVEN(BEFORE, before))
INFO(cuStreamGetCaptureInfo_v3, GIVEN(STATUS, status), GIVEN(ID, id), GIVEN(GRAPH, graph),
     GIVEN(BEFORE, before), GIVEN(EDGES, edges))
INFO(cuStreamGetCaptureInfo_v3_ptsz, GIVEN(STATUS, status), GIVEN(ID, id), GIVEN(GRAPH, graph),
     GIVEN(BEFORE, before), GIVEN(EDGES, edges))
