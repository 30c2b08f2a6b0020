/* Graphs: their form, what their nodes tell, and what a launch does. */
#include "test/api/api.h"

#include <string.h>

static CUgraphNode fill_node(CUgraph graph, CUgraphNode after, CUdeviceptr to, unsigned value) {
    CUDA_MEMSET_NODE_PARAMS p = {to, 0, value, 4, 1, 1};
    CUgraphNode node = NULL;

    OK(cuGraphAddMemsetNode, &node, graph, &after, after != NULL, &p, NULL);
    return node;
}

void api_case_graphs(void) {
    CUgraph graph = NULL, clone = NULL;
    CUgraphNode a = NULL, b = NULL, c = NULL, found = NULL, list[6] = {0}, to[6] = {0};
    CUgraphNodeType type = (CUgraphNodeType)77;
    size_t count = 77;

    api_begin();
    OK(cuGraphCreate, &graph, 0);
    OK(cuGraphGetNodes, graph, NULL, &count);
    SAME(count, 0);
    OK(cuGraphAddEmptyNode, &a, graph, NULL, 0);
    OK(cuGraphAddEmptyNode, &b, graph, &a, 1);
    OK(cuGraphAddEmptyNode, &c, graph, NULL, 0);
    OK(cuGraphAddDependencies, graph, &b, &c, 1);
    INVALID(cuGraphAddDependencies, graph, &b, &c, 1);
    OK(cuGraphGetNodes, graph, NULL, &count);
    SAME(count, 3);
    count = 6;
    OK(cuGraphGetNodes, graph, list, &count);
    TRUE(count == 3 && list[0] == a && list[1] == b && list[2] == c && list[3] == NULL);
    count = 2;
    memset(list, 0, sizeof list);
    OK(cuGraphGetNodes, graph, list, &count);
    TRUE(count == 2 && list[1] == b && list[2] == NULL);
    count = 6;
    OK(cuGraphGetRootNodes, graph, list, &count);
    TRUE(count == 1 && list[0] == a);
    count = 6;
    OK(cuGraphGetEdges, graph, list, to, &count);
    SAME(count, 2);
    TRUE((list[0] == a && to[0] == b) || (list[1] == a && to[1] == b));
    count = 6;
    OK(cuGraphNodeGetDependencies, c, list, &count);
    TRUE(count == 1 && list[0] == b);
    count = 6;
    OK(cuGraphNodeGetDependentNodes, a, list, &count);
    TRUE(count == 1 && list[0] == b);
    OK(cuGraphNodeGetType, c, &type);
    SAME(type, CU_GRAPH_NODE_TYPE_EMPTY);
    OK(cuGraphClone, &clone, graph);
    OK(cuGraphNodeFindInClone, &found, c, clone);
    TRUE(found && found != c);
    OK(cuGraphRemoveDependencies, graph, &b, &c, 1);
    INVALID(cuGraphRemoveDependencies, graph, &b, &c, 1);
    OK(cuGraphDestroyNode, b);
    INVALID(cuGraphDestroyNode, b);
    count = 6;
    OK(cuGraphGetRootNodes, graph, list, &count);
    SAME(count, 2);
    count = 6;
    OK(cuGraphGetNodes, clone, list, &count);
    SAME(count, 3);
    OK(cuGraphDestroy, clone);
    OK(cuGraphDestroy, graph);
    INVALID(cuGraphDestroy, graph);
    INVALID(cuGraphCreate, &graph, 5);
    INVALID(cuGraphCreate, NULL, 0);
    INVALID(cuGraphNodeGetType, a, &type);
    INVALID(cuGraphGetNodes, graph, NULL, &count);
}

static void count_call(void *calls) {
    __atomic_add_fetch((int *)calls, 1, __ATOMIC_RELAXED);
}

static void check_kernel_node(CUgraph graph, CUdeviceptr at) {
    uint64_t words = 4;
    uint32_t value = 77;
    void *params[] = {&at, &value, &words};
    CUDA_KERNEL_NODE_PARAMS_v1 p = {.func = api_function("divvy_fill"),
                                    .gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 32,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .kernelParams = params},
                               got = {0};
    CUgraphNode node = NULL;
    CUgraphNodeType type = (CUgraphNodeType)77;

    OK(cuGraphAddKernelNode, &node, graph, NULL, 0, &p);
    OK(cuGraphNodeGetType, node, &type);
    SAME(type, CU_GRAPH_NODE_TYPE_KERNEL);
    OK(cuGraphKernelNodeGetParams, node, &got);
    TRUE(got.func == p.func && got.gridDimX == 1 && got.blockDimX == 32 && got.kernelParams);
    if (got.kernelParams) {
        SAME(*(uint32_t *)got.kernelParams[1], 77);
    }
    value = 78;
    OK(cuGraphKernelNodeSetParams, node, &p);
    value = 99; /* it was copied */
    p.gridDimX = 0;
    INVALID(cuGraphKernelNodeSetParams, node, &p);
}

void api_case_nodes(void) {
    static int calls;
    CUDA_HOST_NODE_PARAMS host = {count_call, &calls}, host_got = {0};
    CUDA_MEMSET_NODE_PARAMS fill_got = {0};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .WidthInBytes = 4,
                          .Height = 1,
                          .Depth = 1},
                  copy_got;
    CUgraph graph = NULL, child = NULL, child_got = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode first, node = NULL;
    CUdeviceptr a = 0;
    CUevent e = NULL, event_got = NULL;

    api_begin();
    OK(cuMemAlloc_v2, &a, 256);
    OK(cuMemsetD8_v2, a, 0, 256);
    OK(cuEventCreate, &e, 0);
    OK(cuGraphCreate, &graph, 0);
    first = fill_node(graph, NULL, a, 1);
    OK(cuGraphMemsetNodeGetParams, first, &fill_got);
    TRUE(fill_got.dst == a && fill_got.value == 1 && fill_got.elementSize == 4);
    OK(cuGraphCreate, &child, 0);
    fill_node(child, NULL, a + 8, 2);
    OK(cuGraphAddChildGraphNode, &node, graph, &first, 1, child);
    OK(cuGraphChildGraphNodeGetGraph, node, &child_got);
    TRUE(child_got && child_got != child);
    OK(cuGraphDestroy, child);
    copy.srcDevice = a;
    copy.dstDevice = a + 16;
    OK(cuGraphAddMemcpyNode, &node, graph, &node, 1, &copy, NULL);
    OK(cuGraphMemcpyNodeGetParams, node, &copy_got);
    TRUE(copy_got.srcDevice == a && copy_got.dstDevice == a + 16 && copy_got.WidthInBytes == 4);
    OK(cuGraphAddHostNode, &node, graph, &node, 1, &host);
    OK(cuGraphHostNodeGetParams, node, &host_got);
    TRUE(host_got.fn == count_call && host_got.userData == &calls);
    OK(cuGraphAddEventRecordNode, &node, graph, &node, 1, e);
    OK(cuGraphEventRecordNodeGetEvent, node, &event_got);
    TRUE(event_got == e);
    check_kernel_node(graph, a + 64);
    OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
    SAME(calls, 0);
    for (int i = 1; i <= 3; i++) {
        OK(cuMemsetD8_v2, a, 0, 256);
        OK(cuGraphLaunch, exec, NULL);
        OK(cuStreamSynchronize, NULL);
        SAME(calls, i);
        TRUE(api_word(a) == 1 && api_word(a + 8) == 2 && api_word(a + 16) == 1);
        TRUE(api_word(a + 64) == 78 && api_word(a + 76) == 78 && api_word(a + 80) == 0);
        OK(cuEventQuery, e);
    }
    INVALID(cuGraphAddMemsetNode, &node, graph, NULL, 0, NULL, NULL);
    INVALID(cuGraphAddHostNode, &node, graph, NULL, 0, NULL);
    INVALID(cuGraphAddEmptyNode, NULL, graph, NULL, 0);
    INVALID(cuGraphAddEmptyNode, &node, graph, NULL, 1);
    INVALID(cuGraphMemcpyNodeGetParams, first, &copy_got);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, graph);
}

void api_case_executables(void) {
    CUgraphExecUpdateResultInfo info = {0};
    CUgraph one = NULL, other = NULL, longer = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode first, node;
    CUdeviceptr a = 0;
    unsigned enabled = 77;
    cuuint64_t flags = 77;

    api_begin();
    OK(cuMemAlloc_v2, &a, 64);
    OK(cuGraphCreate, &one, 0);
    OK(cuGraphCreate, &other, 0);
    OK(cuGraphCreate, &longer, 0);
    first = fill_node(one, NULL, a, 1);
    fill_node(other, NULL, a, 2);
    node = fill_node(longer, NULL, a, 3);
    fill_node(longer, node, a, 4);
    OK(cuGraphInstantiateWithFlags, &exec, one, 0);
    OK(cuGraphExecGetFlags, exec, &flags);
    SAME(flags, 0);
    OK(cuGraphUpload, exec, NULL);
    OK(cuGraphLaunch, exec, NULL);
    SAME(api_word(a), 1);
    CUDA_MEMSET_NODE_PARAMS fill = {a, 0, 9, 4, 1, 1};
    OK(cuGraphExecMemsetNodeSetParams, exec, first, &fill, NULL);
    OK(cuGraphLaunch, exec, NULL);
    SAME(api_word(a), 9);
    OK(cuGraphMemsetNodeSetParams, first, &fill);
    OK(cuGraphNodeSetEnabled, exec, first, 0);
    OK(cuGraphNodeGetEnabled, exec, first, &enabled);
    SAME(enabled, 0);
    OK(cuMemsetD32_v2, a, 0, 1);
    OK(cuGraphLaunch, exec, NULL);
    SAME(api_word(a), 0);
    OK(cuGraphNodeSetEnabled, exec, first, 1);
    OK(cuGraphExecUpdate_v2, exec, other, &info);
    SAME(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    OK(cuGraphLaunch, exec, NULL);
    SAME(api_word(a), 2);
    ANSWERS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2, exec, longer, &info);
    SAME(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    OK(cuGraphDestroy, one);
    OK(cuGraphLaunch, exec, NULL);
    SAME(api_word(a), 2);
    OK(cuGraphExecDestroy, exec);
    INVALID(cuGraphLaunch, exec, NULL);
    INVALID(cuGraphExecDestroy, exec);
    INVALID(cuGraphInstantiateWithFlags, &exec, one, 0);
    INVALID(cuGraphInstantiateWithFlags, NULL, other, 0);
    INVALID(cuGraphInstantiateWithFlags, &exec, other, 0x1000);
    OK(cuGraphInstantiateWithFlags, &exec, longer, 0);
    OK(cuGraphLaunch, exec, NULL);
    SAME(api_word(a), 4);
}

void api_case_graph_memory(void) {
    CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
                                    .bytesize = 3 * MIB};
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode node = NULL;
    CUdeviceptr kept, got = 0;
    cuuint64_t bytes = 77;

    api_begin();
    OK(cuGraphCreate, &graph, 0);
    OK(cuGraphAddMemAllocNode, &node, graph, NULL, 0, &p);
    kept = p.dptr;
    TRUE(kept != 0);
    node = fill_node(graph, node, kept, 5);
    OK(cuGraphAddMemAllocNode, &node, graph, &node, 1, &p);
    TRUE(p.dptr != kept);
    OK(cuGraphAddMemFreeNode, &node, graph, &node, 1, p.dptr);
    OK(cuGraphMemFreeNodeGetParams, node, &got);
    SAME(got, p.dptr);
    OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
    OK(cuGraphLaunch, exec, NULL);
    OK(cuStreamSynchronize, NULL);
    SAME(api_word(kept), 5);
    OK(cuDeviceGetGraphMemAttribute, 0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes);
    TRUE(bytes >= 3 * MIB);
    INVALID(cuGraphLaunch, exec, NULL);
    OK(cuMemFreeAsync, kept, NULL);
    OK(cuStreamSynchronize, NULL);
    OK(cuGraphLaunch, exec, NULL);
    OK(cuStreamSynchronize, NULL);
    SAME(api_word(kept), 5);
    OK(cuMemFreeAsync, kept, NULL);
    OK(cuStreamSynchronize, NULL);
    OK(cuDeviceGraphMemTrim, 0);
    OK(cuDeviceGetGraphMemAttribute, 0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes);
    SAME(bytes, 0);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, graph);
    ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGraphMemTrim, 9999);
    INVALID(cuDeviceGetGraphMemAttribute, 0, (CUgraphMem_attribute)77, &bytes);
}
