/* Memory of graphs on simgpu: allocation nodes take it, whichever way they came into the graph. */
#include "cuda/test/sim.h"

#define LIMIT (256 * MIB)
#define SIZE (20 * MIB)

static struct setting s;
static CUstream stream;

static void check_account(void) {
    CHECK_TRUE_ACCOUNT(&s);
    CHECK_EQUAL(pending_bytes(s.share, 0), 0);
}

static void synchronise(void) {
    CHECK_EQUAL(CUDA(&s, cuStreamSynchronize)(stream), CUDA_SUCCESS);
}

static void trim(void) {
    CHECK_EQUAL(CUDA(&s, cuDeviceGraphMemTrim)(0), CUDA_SUCCESS);
    check_account();
}

/* A graph that allocates and frees again. */
static CUgraph by_nodes(size_t bytes) {
    CUgraph graph;
    CUgraphNode alloc, give;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
        .bytesize = bytes};
    CHECK_EQUAL(CUDA(&s, cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphAddMemAllocNode)(&alloc, graph, NULL, 0, &params), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphAddMemFreeNode)(&give, graph, &alloc, 1, params.dptr),
                CUDA_SUCCESS);
    return graph;
}

/* The same by capturing what a stream is given; nothing is charged meanwhile. */
static CUgraph by_capture(size_t bytes) {
    CUgraph graph;
    CUdeviceptr address;
    uint64_t before = setting_used(&s);
    CHECK_EQUAL(CUDA(&s, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAllocAsync)(&address, bytes, stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemFreeAsync)(address, stream), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), before);
    CHECK_EQUAL(CUDA(&s, cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), before);
    return graph;
}

static void launches_are_charged(CUgraph graph) {
    CUgraphExec exec;
    uint64_t before = setting_used(&s);
    CHECK_EQUAL(CUDA(&s, cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
    check_account();
    for (int i = 0; i < 5; i++) {
        CHECK_EQUAL(CUDA(&s, cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
        check_account();
        CHECK(setting_used(&s) >= before + SIZE);
    }
    synchronise();
    check_account();
    CHECK_EQUAL(CUDA(&s, cuGraphExecDestroy)(exec), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphDestroy)(graph), CUDA_SUCCESS);
    trim();
    CHECK_EQUAL(setting_used(&s), before);
}

static void graphs_are_no_way_around(void) {
    CUgraphExec execs[64];
    CUgraph graph = by_nodes(LIMIT);
    CHECK_EQUAL(CUDA(&s, cuGraphInstantiateWithFlags)(&execs[0], graph, 0),
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuGraphDestroy)(graph), CUDA_SUCCESS);
    check_account();
    unsigned count = 0;
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && count < 64) {
        graph = by_nodes(SIZE);
        result = CUDA(&s, cuGraphInstantiateWithFlags)(&execs[count], graph, 0);
        CHECK_EQUAL(CUDA(&s, cuGraphDestroy)(graph), CUDA_SUCCESS);
        if (result == CUDA_SUCCESS) {
            result = CUDA(&s, cuGraphLaunch)(execs[count++], stream);
        }
        check_account();
        CHECK(sim_peak(&s, 0) <= LIMIT);
    }
    synchronise();
    while (count > 0) {
        CHECK_EQUAL(CUDA(&s, cuGraphExecDestroy)(execs[--count]), CUDA_SUCCESS);
    }
    trim();
}

/* Memory that a graph leaves behind is freed by name, in a stream or at once. */
static void what_a_graph_leaves_is_freed(void) {
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
        .bytesize = SIZE};
    uint64_t before = setting_used(&s);
    CHECK_EQUAL(CUDA(&s, cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &params), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
    check_account();
    CHECK_EQUAL(CUDA(&s, cuMemFreeAsync)(params.dptr, stream), CUDA_SUCCESS);
    synchronise();
    check_account();
    CHECK_EQUAL(CUDA(&s, cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
    synchronise();
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(params.dptr), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphExecDestroy)(exec), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphDestroy)(graph), CUDA_SUCCESS);
    trim();
    CHECK_EQUAL(setting_used(&s), before);
}

int main(void) {
    sim_make(&s, 1, LIMIT);
    setting_context(&s);
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    launches_are_charged(by_nodes(SIZE));
    launches_are_charged(by_capture(SIZE));
    graphs_are_no_way_around();
    what_a_graph_leaves_is_freed();
    CHECK(sim_peak(&s, 0) <= LIMIT);
    return 0;
}
