/* A graph ends, and with it its nodes and the graphs of its nodes. Their numbers end on both sides: programs that make a
 * graph for each step would otherwise fill the tables. */
#include "remote/worker/graphs.h"

#include <stdlib.h>

/* Handles that the driver is about to end. */
struct ending {
    CUgraphNode *nodes;
    size_t node_count;
    CUgraph *graphs; /* all but the first are of nodes */
    size_t graph_count;
};

static void *grown(void *list, size_t count, size_t more, size_t size) {
    return count + more > SIZE_MAX / size ? NULL : realloc(list, (count + more + 1) * size);
}

static bool add_graph(struct ending *e, CUgraph graph) {
    CUgraph *graphs = grown(e->graphs, e->graph_count, 1, sizeof *graphs);

    if (!graphs) {
        return false;
    }
    e->graphs = graphs;
    e->graphs[e->graph_count++] = graph;
    return true;
}

/* Adds the nodes of a graph. False if the driver does not tell them: then their numbers stay. */
static bool add_nodes(const struct remote_cuda_driver *cuda, struct ending *e, CUgraph graph) {
    size_t count = 0;

    if (cuda->cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS) {
        return false;
    }
    CUgraphNode *nodes = grown(e->nodes, e->node_count, count, sizeof *nodes);
    if (!nodes) {
        return false;
    }
    e->nodes = nodes;
    if (count && cuda->cuGraphGetNodes(graph, nodes + e->node_count, &count) != CUDA_SUCCESS) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
        CUgraph child;

        if (cuda->cuGraphNodeGetType(nodes[e->node_count + i], &type) == CUDA_SUCCESS &&
            type == CU_GRAPH_NODE_TYPE_GRAPH &&
            cuda->cuGraphChildGraphNodeGetGraph(nodes[e->node_count + i], &child) == CUDA_SUCCESS &&
            !add_graph(e, child)) {
            return false;
        }
    }
    e->node_count += count;
    return true;
}

static void collect(const struct remote_cuda_driver *cuda, struct ending *e, CUgraph graph) {
    if (!cuda->cuGraphGetNodes || !cuda->cuGraphNodeGetType ||
        !cuda->cuGraphChildGraphNodeGetGraph || !add_graph(e, graph)) {
        return;
    }
    for (size_t i = 0; i < e->graph_count && add_nodes(cuda, e, e->graphs[i]); i++) {
    }
}

/* Forgets every number that a handle has; how many of them were put into the list, whose room is what an answer carries. */
static uint64_t forget(struct remote_worker *worker, enum remote_kind kind, uint64_t handle,
                       uint64_t *list, uint64_t room) {
    uint64_t number, count = 0;

    while ((number = remote_worker_known(worker, kind, handle))) {
        remote_worker_unbind(worker, kind, number);
        if (count < room) {
            list[count++] = number;
        }
    }
    return count;
}

enum remote_outcome remote_hand_cuGraphDestroy(struct remote_decoder *decoder) {
    static uint64_t list[REMOTE_ARRAY_BYTES / sizeof(uint64_t)]; /* of the one executor */
    const uint64_t room = sizeof list / sizeof *list;
    struct node_ended ended = {0};
    struct ending e = {0};

    if (!remote_words(decoder, 1)) {
        return REMOTE_GARBLED;
    }
    CUgraph graph = (CUgraph)remote_handle(decoder, 0, REMOTE_KIND_CUgraph);
    if (!remote_taken(decoder, decoder->cuda->cuGraphDestroy != NULL)) {
        return remote_not_called(decoder);
    }
    if (graph) {
        collect(decoder->cuda, &e, graph);
    }
    remote_answer(decoder, (int32_t)decoder->cuda->cuGraphDestroy(graph));
    for (size_t i = 0; decoder->result == 0 && i < e.node_count; i++) {
        ended.nodes += forget(decoder->worker, REMOTE_KIND_CUgraphNode, (uint64_t)e.nodes[i],
                              list + ended.nodes, room - ended.nodes);
    }
    for (size_t i = 1; decoder->result == 0 && i < e.graph_count; i++) {
        ended.graphs +=
            forget(decoder->worker, REMOTE_KIND_CUgraph, (uint64_t)e.graphs[i],
                   list + ended.nodes + ended.graphs, room - ended.nodes - ended.graphs);
    }
    free(e.nodes);
    free(e.graphs);
    remote_give_ended(decoder, 0, REMOTE_KIND_CUgraph);
    remote_give(decoder, 0, &ended, sizeof ended, false);
    remote_give(decoder, 1, list, (ended.nodes + ended.graphs) * sizeof *list, false);
    return remote_finish(decoder);
}
