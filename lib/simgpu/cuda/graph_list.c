/* What a graph tells of its nodes and edges. */
#include "simgpu/cuda/graph.h"

#include <string.h>

/* Without a buffer a list answers its length. Else it fills the buffer, clears the rest, and
 * answers how many entries it wrote. */
struct list {
    CUgraphNode *out;
    size_t room, count;
};

static void list_add(struct list *list, CUgraphNode node) {
    if (list->out && list->count >= list->room) {
        return;
    }
    if (list->out) {
        list->out[list->count] = node;
    }
    list->count++;
}

static CUresult list_end(struct list *list, size_t *count) {
    for (size_t i = list->count; list->out && i < list->room; i++) {
        list->out[i] = NULL;
    }
    *count = list->count;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    CUgraphNode node;

    SG_READY();
    SG_REQUIRE(handle_given(graph, HANDLE_GRAPH) && count, CUDA_ERROR_INVALID_VALUE);
    struct list list = {nodes, *count, 0};
    EACH_NODE (node, graph) {
        list_add(&list, node);
    }
    return list_end(&list, count);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    CUgraphNode node;

    SG_READY();
    SG_REQUIRE(handle_given(graph, HANDLE_GRAPH) && count, CUDA_ERROR_INVALID_VALUE);
    struct list list = {nodes, *count, 0};
    EACH_NODE (node, graph) {
        if (node->before_count == 0) {
            list_add(&list, node);
        }
    }
    return list_end(&list, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count) {
    SG_READY();
    SG_REQUIRE(handle_given(node, HANDLE_NODE) && count, CUDA_ERROR_INVALID_VALUE);
    struct list list = {nodes, *count, 0};
    for (size_t i = 0; i < node->before_count; i++) {
        list_add(&list, node->before[i]);
    }
    return list_end(&list, count);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count) {
    CUgraphNode other;

    SG_READY();
    SG_REQUIRE(handle_given(node, HANDLE_NODE) && count, CUDA_ERROR_INVALID_VALUE);
    struct list list = {nodes, *count, 0};
    EACH_NODE (other, node->graph) {
        if (node_depends(other, node)) {
            list_add(&list, other);
        }
    }
    return list_end(&list, count);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count) {
    CUgraphNode node;

    SG_READY();
    SG_REQUIRE(handle_given(graph, HANDLE_GRAPH) && count && !from == !to,
               CUDA_ERROR_INVALID_VALUE);
    struct list starts = {from, *count, 0}, ends = {to, *count, 0};
    EACH_NODE (node, graph) {
        for (size_t i = 0; i < node->before_count; i++) {
            list_add(&starts, node->before[i]);
            list_add(&ends, node);
        }
    }
    list_end(&starts, count);
    return list_end(&ends, count);
}

static void clear_edges(CUgraphEdgeData *data, const void *nodes, size_t count) {
    if (data && nodes) {
        memset(data, 0, count * sizeof *data);
    }
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                            CUgraphEdgeData *data, size_t *count) {
    SG_TRY(cuGraphGetEdges(graph, from, to, count));
    clear_edges(data, from, *count);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data,
                                       size_t *count) {
    SG_TRY(cuGraphNodeGetDependencies(node, nodes, count));
    clear_edges(data, nodes, *count);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes,
                                         CUgraphEdgeData *data, size_t *count) {
    SG_TRY(cuGraphNodeGetDependentNodes(node, nodes, count));
    clear_edges(data, nodes, *count);
    return CUDA_SUCCESS;
}
