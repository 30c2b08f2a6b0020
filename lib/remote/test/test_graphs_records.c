/* Records about nodes, attributes, captures and functions of the program that no client of ours would send: beside a driver
 * that reads everything it was given. FRAMES=n says how many. */
#include "abi/generated/cuda_functions.h"
#include "remote/attribute.h"
#include "remote/capture.h"
#include "remote/due.h"
#include "remote/node.h"
#include "remote/test/exercise.h"
#include "remote/test/graphs_driver.h"
#include "remote/worker/hand.h"

#include "test/check.h"

#include <string.h>

static uint64_t state = 5;
static unsigned long outcomes[REMOTE_BY_HAND + 1];

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 7;
}

/* Calls, each with its words. */
static const struct kind {
    uint16_t call;
    uint16_t words;
} kinds[] = {
    {REMOTE_cuGraphAddNode, NODE_WORDS},
    {REMOTE_cuGraphAddNode_v2, NODE_WORDS},
    {REMOTE_cuGraphAddKernelNode_v2, NODE_WORDS},
    {REMOTE_cuGraphExecNodeSetParams, NODE_WORDS},
    {REMOTE_cuGraphNodeGetParams, NODE_WORDS},
    {REMOTE_cuGraphKernelNodeSetAttribute, ATTRIBUTE_WORDS},
    {REMOTE_cuOccupancyMaxActiveClusters, CLUSTER_WORDS},
    {REMOTE_cuMemPoolSetAttribute, ATTRIBUTE_WORDS},
    {REMOTE_cuLaunchHostFunc, DUE_WORDS},
    {REMOTE_cuStreamGetCaptureInfo_v2, CAPTURE_WORDS},
    {REMOTE_cuGraphDestroy, 1},
    {REMOTE_cuUserObjectCreate, DUE_OBJECT_WORDS},
    {REMOTE_CALLBACK, 1},
    {REMOTE_CAPTURE_MODE, 1},
};

static uint64_t word(void) {
    uint64_t drawn = next();

    switch (drawn % 8) {
    case 0:
        return drawn >> 3;
    case 1:
        return UINT64_MAX - (drawn >> 8) % 64;
    case 2:
        return UINT64_C(1) << (drawn >> 8) % 64;
    default:
        return (drawn >> 8) % 5;
    }
}

/* Parameters of a kind that often are what a client would send. */
static void draw_form(CUgraphNodeParams *p) {
    memset(p, 0, sizeof *p);
    p->type = (CUgraphNodeType)(next() % 16);
    for (size_t i = 16; i + 8 <= sizeof *p; i += 8) {
        uint64_t value = next() % 3 ? next() % 4 : word();
        memcpy((unsigned char *)p + i, &value, sizeof value);
    }
}

static enum remote_outcome send(const struct kind *kind, uint32_t given, const uint64_t *words,
                                const void *pieces, size_t size) {
    struct remote_head head = {.call = kind->call, .given = given, .sequence = 1, .thread = 1};

    head.size = (uint32_t)(sizeof head + 8u * kind->words + size);
    unsigned char *exact = malloc(head.size);
    CHECK(exact);
    memcpy(exact, &head, sizeof head);
    memcpy(exact + sizeof head, words, 8u * kind->words);
    if (size) {
        memcpy(exact + sizeof head + 8u * kind->words, pieces, size);
    }
    enum remote_outcome outcome = remote_decode(&loopback, exact, head.size);
    if (outcome == REMOTE_BY_HAND) {
        remote_decode_one *one = remote_hand_decoder(head.call);
        CHECK(one);
        outcome = one(&loopback);
    }
    free(exact);
    return outcome;
}

/* Numbers that name something. */
static void bind_all(void) {
    loopback_forget();
    for (uint64_t number = 1; number < 4; number++) {
        remote_worker_bind(NULL, REMOTE_KIND_CUgraph, number, 0x1000 + number);
        remote_worker_bind(NULL, REMOTE_KIND_CUgraphNode, number, 0x5000 + number);
        remote_worker_bind(NULL, REMOTE_KIND_CUgraphExec, number, 0x3000 + number);
        remote_worker_bind(NULL, REMOTE_KIND_CUfunction, number, 0x2000 + number);
        remote_worker_bind(NULL, REMOTE_KIND_CUcontext, number, 0x4000 + number);
        remote_worker_bind(NULL, REMOTE_KIND_CUmemoryPool, number, 0x6000 + number);
    }
}

/* How many bytes one element of what the parameters lead to has, 0 for nothing. */
static size_t element_of(CUgraphNodeType type) {
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return 8;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return sizeof(CUmemAccessDesc);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return sizeof(CUstreamBatchMemOpParams);
    default:
        return 0;
    }
}

/* Pieces of a record about a node, mostly as long as its words say. */
static size_t draw_pieces(uint64_t *words, uint32_t given, unsigned char *pieces) {
    CUgraphNodeParams form;
    size_t size = 0, count = next() % 4;

    draw_form(&form);
    words[NODE_COUNT] = next() % 4;
    for (unsigned bit = NODE_GIVEN_BEFORE; bit <= NODE_GIVEN_EDGES; bit++) {
        for (uint64_t i = 0; given >> bit & 1 && i < words[NODE_COUNT]; i++, size += 8) {
            uint64_t number = next() % 4;
            memcpy(pieces + size, &number, sizeof number);
        }
    }
    if (given >> NODE_GIVEN_PARAMS & 1) {
        if (form.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
            form.memOp.count = (unsigned)(next() % 8 ? count : next());
        }
        memcpy(pieces + size, &form, sizeof form);
        size += sizeof form;
        words[NODE_LENGTH] = form.type == CU_GRAPH_NODE_TYPE_KERNEL ? count * 8
                             : next() % 8                           ? count
                                                                    : word();
        size += given >> NODE_GIVEN_MORE & 1 ? remote_padded(count * element_of(form.type)) : 0;
    }
    return size;
}

static void frame(void) {
    static _Alignas(8) unsigned char pieces[8192];
    const struct kind *kind = &kinds[next() % (sizeof kinds / sizeof *kinds)];
    uint64_t words[NODE_WORDS];
    size_t size = 8 * (next() % 10);

    for (unsigned i = 0; i < NODE_WORDS; i++) {
        words[i] = next() % 16 ? next() % 4 : word();
    }
    for (size_t i = 0; i < 512; i++) {
        pieces[i] = (unsigned char)(next() % 8 ? 0 : next());
    }
    uint32_t given = (uint32_t)next() & (next() % 4 ? 0x1f : UINT32_MAX);
    if (kind->words == NODE_WORDS && next() % 8) {
        size = draw_pieces(words, given, pieces);
        words[NODE_MADE] = 0x1000 + next() % 100000;
    } else if (kind->call == REMOTE_cuUserObjectCreate) {
        words[DUE_MADE] = 0x1000 + next() % 100000;
        size = 0;
    } else if (kind->call == REMOTE_cuStreamGetCaptureInfo_v2) {
        given = 7;
        size = 0;
    } else if (kind->words <= 3) {
        size = next() % 2 ? 0 : size;
    }
    outcomes[send(kind, given, words, pieces, size)]++;
    if (next() % 512 == 0) {
        bind_all();
    }
}

static void check_refused(void) {
    static const struct kind add_node = {REMOTE_cuGraphAddNode, NODE_WORDS};
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    uint64_t words[NODE_WORDS] = {0};

    CHECK_EQUAL(send(&add_node, 1u << NODE_GIVEN_PARAMS, words, &p, sizeof p), REMOTE_ANSWERED);
    CHECK_EQUAL(loopback.result, CUDA_ERROR_NOT_SUPPORTED);
    /* A copy from a region, one byte too far. */
    memset(&p, 0, sizeof p);
    p.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    p.memcpy.copyParams = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_HOST,
                                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                          .WidthInBytes = GRAPHS_REGION_BYTES,
                                          .Height = 1,
                                          .Depth = 1};
    words[NODE_FROM] = 1;
    CHECK_EQUAL(send(&add_node, 1u << NODE_GIVEN_PARAMS, words, &p, sizeof p), REMOTE_ANSWERED);
    p.memcpy.copyParams.srcXInBytes = 1;
    CHECK_EQUAL(send(&add_node, 1u << NODE_GIVEN_PARAMS, words, &p, sizeof p), REMOTE_GARBLED);
    p.memcpy.copyParams.srcXInBytes = UINT64_MAX;
    CHECK_EQUAL(send(&add_node, 1u << NODE_GIVEN_PARAMS, words, &p, sizeof p), REMOTE_GARBLED);
    p.memcpy.copyParams.srcXInBytes = 0;
    words[NODE_FROM] = 0;
    CHECK_EQUAL(send(&add_node, 1u << NODE_GIVEN_PARAMS, words, &p, sizeof p), REMOTE_GARBLED);
    /* An address that only the worker has. */
    p.memcpy.copyParams.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    p.memcpy.copyParams.srcDevice = (CUdeviceptr)words;
    CHECK_EQUAL(send(&add_node, 1u << NODE_GIVEN_PARAMS, words, &p, sizeof p), REMOTE_ANSWERED);
    CHECK_EQUAL(loopback.result, CUDA_ERROR_INVALID_VALUE);
}

/* With a graph its nodes' numbers end, and those of their graphs, on both sides. */
static void check_ended(void) {
    uint64_t graph = loopback_number(REMOTE_KIND_CUgraph, GRAPHS_PARENT);
    uint64_t child = loopback_number(REMOTE_KIND_CUgraph, GRAPHS_CHILD);
    uint64_t one = loopback_number(REMOTE_KIND_CUgraphNode, GRAPHS_PARENT_NODE);
    uint64_t other = loopback_number(REMOTE_KIND_CUgraphNode, GRAPHS_CHILD_NODE);

    CHECK_EQUAL(cuGraphDestroy((CUgraph)graph), CUDA_SUCCESS);
    CHECK(!remote_number_known(REMOTE_KIND_CUgraph, graph));
    CHECK(!remote_number_known(REMOTE_KIND_CUgraph, child));
    CHECK(!remote_number_known(REMOTE_KIND_CUgraphNode, one));
    CHECK(!remote_number_known(REMOTE_KIND_CUgraphNode, other));
    CHECK_EQUAL(remote_worker_known(NULL, REMOTE_KIND_CUgraph, GRAPHS_PARENT), 0);
    CHECK_EQUAL(remote_worker_known(NULL, REMOTE_KIND_CUgraph, GRAPHS_CHILD), 0);
    CHECK_EQUAL(remote_worker_known(NULL, REMOTE_KIND_CUgraphNode, GRAPHS_PARENT_NODE), 0);
    CHECK_EQUAL(remote_worker_known(NULL, REMOTE_KIND_CUgraphNode, GRAPHS_CHILD_NODE), 0);
}

int main(void) {
    const char *frames = getenv("FRAMES");
    uint64_t count = frames ? strtoull(frames, NULL, 10) : 300000;

    loopback_start(&graphs_driver, &nvml_mock);
    bind_all();
    check_refused();
    check_ended();
    for (uint64_t i = 0; i < count; i++) {
        frame();
    }
    printf("%lu answered, %lu later, %lu garbled, the driver called %lu times, sum %u\n",
           outcomes[REMOTE_ANSWERED], outcomes[REMOTE_LATER], outcomes[REMOTE_GARBLED],
           graphs_called, graphs_sum);
    CHECK(graphs_called > count / 50);
    return 0;
}
