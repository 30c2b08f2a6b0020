/* Captures of streams: the mode of each thread of the program, and what a capture tells of itself. */
#include "remote/capture.h"
#include "remote/client/graphs_lent.h"

#include <stdlib.h>
#include <string.h>

static __thread uint32_t thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* The worker hears of it before any record that follows. */
static CUresult send_mode(uint32_t mode) {
    const uint64_t word = mode;
    struct remote_head head = {
        .size = sizeof head + sizeof word, .call = REMOTE_CAPTURE_MODE, .posted = 1};
    const struct remote_piece piece = {&word, sizeof word};

    return remote_send(&head, &piece, 1) ? CUDA_SUCCESS : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    struct remote_call call;

    /* Asks whether it may, as all calls do. */
    remote_begin(&call, REMOTE_cuStreamIsCapturing, 0);
    if (call.fault) {
        return (CUresult)call.fault;
    }
    if (!mode || (uint32_t)*mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint32_t before = thread_mode, wanted = (uint32_t)*mode;
    if (wanted != before) {
        CUresult result = send_mode(wanted);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        thread_mode = wanted;
    }
    *mode = (CUstreamCaptureMode)before;
    return CUDA_SUCCESS;
}

/* What a call wants to know; each may be NULL. */
struct want {
    CUstreamCaptureStatus *status;
    cuuint64_t *id;
    CUgraph *graph;
    const CUgraphNode **before;
    const CUgraphEdgeData **edges;
    size_t *count;
};

static uint64_t mask_of(const struct want *want) {
    return (want->status ? CAPTURE_STATUS : 0) | (want->id ? CAPTURE_ID : 0) |
           (want->graph ? CAPTURE_GRAPH : 0) | (want->before ? CAPTURE_BEFORE : 0) |
           (want->edges ? CAPTURE_EDGES : 0) | (want->count ? CAPTURE_COUNT : 0);
}

/* Nodes, and then their edges, as the worker has told them. */
static unsigned char *read_lists(struct remote_call *call, struct remote_reply *r,
                                 const struct capture_facts *facts) {
    const uint64_t each = sizeof(CUgraphNode) + sizeof(CUgraphEdgeData);

    if (facts->count > REMOTE_ARRAY_BYTES / each) {
        r->garbled = true;
        return NULL;
    }
    unsigned char *lists = calloc(facts->count + 1, each);
    if (!lists) {
        call->fault = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    const bool nodes = facts->told & CAPTURE_BEFORE, edges = facts->told & CAPTURE_EDGES;
    remote_get(call, r, 1, lists, nodes ? facts->count * sizeof(CUgraphNode) : 0, false);
    remote_get(call, r, 2, lists + facts->count * sizeof(CUgraphNode),
               edges ? facts->count * sizeof(CUgraphEdgeData) : 0, false);
    for (uint64_t i = 0; nodes && !r->garbled && i < facts->count; i++) {
        remote_learn_field(lists, i * sizeof(CUgraphNode), REMOTE_KIND_CUgraphNode);
    }
    return lists;
}

/* The program keeps what is lent until it asks again, changes the capture or ends it. */
static CUresult give(const struct want *want, CUstream stream, const struct capture_facts *facts,
                     const unsigned char *lists) {
    const uint64_t told = facts->told;
    unsigned char *lent = NULL;

    if (told & (CAPTURE_BEFORE | CAPTURE_EDGES)) {
        lent = lend(REMOTE_KIND_CUstream, (uint64_t)stream, lists,
                    facts->count * (sizeof(CUgraphNode) + sizeof(CUgraphEdgeData)),
                    (struct lent_addresses){0, 1, 0});
        if (!lent) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (told & CAPTURE_STATUS) {
        *want->status = (CUstreamCaptureStatus)facts->status;
    }
    if (told & CAPTURE_ID) {
        *want->id = facts->id;
    }
    if (told & CAPTURE_GRAPH) {
        *want->graph = (CUgraph)facts->graph;
        remote_learn_field(want->graph, 0, REMOTE_KIND_CUgraph);
    }
    if (told & CAPTURE_BEFORE) {
        *want->before = facts->count ? (const CUgraphNode *)(void *)lent : NULL;
    }
    if (told & CAPTURE_EDGES) {
        *want->edges = (const CUgraphEdgeData *)(void *)(lent + facts->count * sizeof(CUgraphNode));
    } else if (facts->no_edges) {
        *want->edges = NULL;
    }
    if (told & CAPTURE_COUNT) {
        *want->count = facts->count;
    }
    return CUDA_SUCCESS;
}

static CUresult ask(enum remote_number number, CUstream stream, const struct want *want) {
    struct capture_facts facts = {0};
    struct remote_call call;
    struct remote_reply r;
    unsigned char *lists = NULL;

    remote_begin(&call, number, CAPTURE_WORDS);
    remote_use(&call, CAPTURE_STREAM, REMOTE_KIND_CUstream, (uint64_t)stream);
    call.words[CAPTURE_WANTED] = mask_of(want);
    call.head.given = 7;
    if (remote_ask(&call, &r)) {
        remote_get(&call, &r, 0, &facts, sizeof facts, false);
        if (r.head.result == 0 && !r.garbled) {
            /* A worker that lies tells no more than was asked. */
            facts.told &= call.words[CAPTURE_WANTED];
            facts.no_edges &= (call.words[CAPTURE_WANTED] & CAPTURE_EDGES) != 0;
            lists = read_lists(&call, &r, &facts);
        }
    }
    CUresult result = (CUresult)remote_end(&call, &r);
    if (lists && !call.fault && !r.garbled && r.at == r.size) {
        CUresult given = give(want, stream, &facts, lists);
        result = given != CUDA_SUCCESS ? given : result;
    }
    free(lists);
    return result;
}

#define V2(name)                                                                                   \
    CUresult name(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,  \
                  const CUgraphNode **before, size_t *count) {                                     \
        return ask(REMOTE_##name, stream, &(struct want){status, id, graph, before, NULL, count}); \
    }
#define V3(name)                                                                                   \
    CUresult name(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,  \
                  const CUgraphNode **before, const CUgraphEdgeData **edges, size_t *count) {      \
        return ask(REMOTE_##name, stream,                                                          \
                   &(struct want){status, id, graph, before, edges, count});                       \
    }

V2(cuStreamGetCaptureInfo_v2)
V2(cuStreamGetCaptureInfo_v2_ptsz)
V3(cuStreamGetCaptureInfo_v3)
V3(cuStreamGetCaptureInfo_v3_ptsz)
