/* Graphs: structure, launch, change, memory nodes. */
#include "simgpu/cuda/test/cuda.h"

#include <string.h>

#define MS 1000000ull

static CUgraphNode add_fill(CUgraph graph, CUgraphNode after, CUdeviceptr to, unsigned value) {
    CUDA_MEMSET_NODE_PARAMS p = {to, 0, value, 4, 1, 1};
    CUgraphNode node;

    OK(cuGraphAddMemsetNode(&node, graph, &after, after != NULL, &p, NULL));
    return node;
}

static unsigned word_at(CUdeviceptr address) {
    unsigned word;

    OK(cuMemcpyDtoH_v2(&word, address, 4));
    return word;
}

static void check_structure(void) {
    CUgraph graph, clone;
    CUgraphNode a, b, c, found, list[4];
    CUgraphNodeType type;
    size_t count = 0;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&a, graph, NULL, 0));
    OK(cuGraphAddEmptyNode(&b, graph, &a, 1));
    OK(cuGraphAddEmptyNode(&c, graph, NULL, 0));
    OK(cuGraphAddDependencies(graph, &b, &c, 1));
    FAILS(cuGraphAddDependencies(graph, &b, &c, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphGetNodes(graph, NULL, &count));
    CHECK_EQUAL(count, 3);
    count = 4;
    OK(cuGraphGetNodes(graph, list, &count));
    CHECK(count == 3 && list[0] == a && list[2] == c && list[3] == NULL);
    count = 4;
    OK(cuGraphGetRootNodes(graph, list, &count));
    CHECK(count == 1 && list[0] == a);
    OK(cuGraphGetEdges(graph, NULL, NULL, &count));
    CHECK_EQUAL(count, 2);
    count = 4;
    OK(cuGraphNodeGetDependentNodes(a, list, &count));
    CHECK(count == 1 && list[0] == b);
    OK(cuGraphNodeGetType(c, &type));
    CHECK_EQUAL(type, CU_GRAPH_NODE_TYPE_EMPTY);
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphNodeFindInClone(&found, c, clone));
    CHECK(found != c);
    OK(cuGraphDestroyNode(b));
    count = 4;
    OK(cuGraphGetRootNodes(graph, list, &count));
    CHECK_EQUAL(count, 2);
    OK(cuGraphDestroy(clone));
    OK(cuGraphDestroy(graph));
    FAILS(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
}

static int calls;

static void count_call(void *unused) {
    (void)unused;
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
}

/* Fills two words, one of them in a child graph, copies the first, computes for 5 ms and calls a
 * function. Returns the node that fills the first word. */
static CUgraphNode build(CUgraph graph, CUdeviceptr a) {
    CUDA_HOST_NODE_PARAMS host = {count_call, NULL};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = a,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = a + 16,
                          .WidthInBytes = 4,
                          .Height = 1,
                          .Depth = 1};
    uint64_t ns = 5 * MS;
    void *params[] = {&ns};
    CUDA_KERNEL_NODE_PARAMS_v1 busy = {.func = cuda_kernel("divvy_busy_ns"),
                                       .gridDimX = 1,
                                       .gridDimY = 1,
                                       .gridDimZ = 1,
                                       .blockDimX = 1,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .kernelParams = params};
    CUgraphNode first = add_fill(graph, NULL, a, 1), node;
    CUgraph child;

    OK(cuGraphCreate(&child, 0));
    add_fill(child, NULL, a + 8, 2);
    OK(cuGraphAddChildGraphNode(&node, graph, &first, 1, child));
    OK(cuGraphDestroy(child));
    OK(cuGraphAddMemcpyNode(&node, graph, &node, 1, &copy, NULL));
    OK(cuGraphAddKernelNode(&node, graph, &node, 1, &busy));
    ns = 999 * MS; /* parameters were copied */
    OK(cuGraphAddHostNode(&node, graph, &node, 1, &host));
    return first;
}

static float time_launch(CUgraphExec exec) {
    CUevent start, end;
    float ms;

    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventRecord(start, NULL));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuEventRecord(end, NULL));
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&ms, start, end));
    OK(cuEventDestroy_v2(start));
    OK(cuEventDestroy_v2(end));
    return ms;
}

static void check_launch(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode first;
    CUdeviceptr a;
    unsigned enabled;

    OK(cuMemAlloc_v2(&a, 64));
    OK(cuGraphCreate(&graph, 0));
    first = build(graph, a);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        CHECK(time_launch(exec) >= 5.0f);
    }
    CHECK_EQUAL(calls, 3);
    CHECK(word_at(a) == 1 && word_at(a + 8) == 2 && word_at(a + 16) == 1);
    CUDA_MEMSET_NODE_PARAMS fill = {a, 0, 9, 4, 1, 1};
    OK(cuGraphExecMemsetNodeSetParams(exec, first, &fill, NULL));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK_EQUAL(word_at(a + 16), 9);
    OK(cuGraphNodeSetEnabled(exec, first, 0));
    OK(cuGraphNodeGetEnabled(exec, first, &enabled));
    CHECK_EQUAL(enabled, 0);
    OK(cuMemsetD32_v2(a, 0, 1));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK_EQUAL(word_at(a), 0);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    FAILS(cuGraphLaunch(exec, NULL), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuGraphDestroyNode(first), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(a));
}

static void check_update(void) {
    CUgraphExecUpdateResultInfo info;
    CUgraph one, other, longer;
    CUgraphExec exec;
    CUgraphNode node;
    CUdeviceptr a;

    OK(cuMemAlloc_v2(&a, 64));
    OK(cuGraphCreate(&one, 0));
    OK(cuGraphCreate(&other, 0));
    OK(cuGraphCreate(&longer, 0));
    add_fill(one, NULL, a, 1);
    add_fill(other, NULL, a, 2);
    node = add_fill(longer, NULL, a, 3);
    add_fill(longer, node, a, 4);
    OK(cuGraphInstantiateWithFlags(&exec, one, 0));
    OK(cuGraphExecUpdate_v2(exec, other, &info));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK_EQUAL(word_at(a), 2);
    FAILS(cuGraphExecUpdate_v2(exec, longer, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK_EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    /* As many nodes of the same kinds, but one beside the other. */
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiateWithFlags(&exec, longer, 0));
    add_fill(one, NULL, a, 5);
    FAILS(cuGraphExecUpdate_v2(exec, one, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK_EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(one));
    OK(cuGraphDestroy(other));
    OK(cuGraphDestroy(longer));
    OK(cuMemFree_v2(a));
}

static cuuint64_t reserved(void) {
    cuuint64_t value;

    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value));
    return value;
}

static void check_memory_nodes(void) {
    CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
                                    .bytesize = 3 * MIB};
    CUgraph graph;
    CUgraphExec exec, self;
    CUgraphNode node;
    CUdeviceptr kept;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &p));
    kept = p.dptr;
    node = add_fill(graph, node, kept, 5);
    OK(cuGraphAddMemAllocNode(&node, graph, &node, 1, &p));
    OK(cuGraphAddMemFreeNode(&node, graph, &node, 1, p.dptr));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphInstantiateWithFlags(&self, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    CHECK_EQUAL(cuda_true(SG_GRAPH), 0);
    OK(cuGraphLaunch(exec, NULL));
    CHECK_EQUAL(cuda_true(SG_GRAPH), 8 * MIB);
    CHECK_EQUAL(reserved(), 8 * MIB);
    OK(cuStreamSynchronize(NULL));
    CHECK_EQUAL(word_at(kept), 5);
    FAILS(cuGraphLaunch(exec, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphLaunch(self, NULL));
    OK(cuDeviceGraphMemTrim(0));
    CHECK_EQUAL(reserved(), 4 * MIB);
    OK(cuMemFreeAsync(kept, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK_EQUAL(reserved(), 4 * MIB);
    OK(cuDeviceGraphMemTrim(0));
    CHECK_EQUAL(cuda_true(SG_GRAPH), 0);
    FAILS(cuMemcpyDtoH_v2(&node, kept, 4), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuGraphDestroyNode(node), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGraphDestroy(graph));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphExecDestroy(self));
}

/* A launch that does not find its memory fails as a whole. */
static void check_refusal(void) {
    CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
                                    .bytesize = 150 * MIB};
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUdeviceptr a;

    OK(cuMemAlloc_v2(&a, 4));
    OK(cuMemsetD32_v2(a, 1, 1));
    OK(cuGraphCreate(&graph, 0));
    node = add_fill(graph, NULL, a, 2);
    OK(cuGraphAddMemAllocNode(&node, graph, &node, 1, &p));
    OK(cuGraphAddMemAllocNode(&node, graph, &node, 1, &p));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    FAILS(cuGraphLaunch(exec, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(word_at(a), 1);
    OK(cuDeviceGraphMemTrim(0));
    CHECK_EQUAL(cuda_true(SG_GRAPH), 0);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree_v2(a));
}

int main(void) {
    cuda_start(NULL);
    check_structure();
    check_launch();
    check_update();
    check_memory_nodes();
    check_refusal();
    CHECK_EQUAL(cuda_true_all(), 4 * MIB);
    return 0;
}
