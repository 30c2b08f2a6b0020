/* The structure of graphs: nodes and what they depend on. */
#include "simgpu/cuda/graph.h"

#include <stdlib.h>
#include <string.h>

pthread_mutex_t graph_lock = PTHREAD_MUTEX_INITIALIZER;

CUgraph graph_new(void) {
    CUgraph graph = handle_new(HANDLE_GRAPH, sizeof *graph);

    if (!graph) {
        return NULL;
    }
    graph->id = (unsigned)sg_new_id();
    link_init(&graph->nodes);
    return graph;
}

struct stream_op *graph_op_keep(const struct stream_op *op) {
    struct stream_op *kept = op_keep(op);

    if (!kept) {
        return NULL;
    }
    if (op->kind == OP_CHILD && !(kept->child = graph_clone(op->child))) {
        op_drop(kept);
        return NULL;
    }
    if (op->kind == OP_CHILD) {
        kept->child->is_child = true;
    }
    if (op->kind == OP_ALLOC) {
        graph_memory_use(op->memory.address);
    }
    return kept;
}

void graph_op_drop(struct stream_op *op) {
    if (op->kind == OP_CHILD) {
        graph_end(op->child);
    }
    if (op->kind == OP_ALLOC) {
        graph_memory_unuse(op->memory.address);
    }
    op_drop(op);
}

CUresult node_depend(CUgraphNode node, CUgraphNode on) {
    for (size_t i = 0; i < node->before_count; i++) {
        if (node->before[i] == on) {
            return CUDA_SUCCESS;
        }
    }
    CUgraphNode *before = realloc(node->before, (node->before_count + 1) * sizeof *before);
    if (!before) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->before = before;
    before[node->before_count++] = on;
    return CUDA_SUCCESS;
}

static void forget_dependency(CUgraphNode node, const struct CUgraphNode_st *on) {
    for (size_t i = 0; i < node->before_count; i++) {
        if (node->before[i] == on) {
            node->before[i] = node->before[--node->before_count];
            return;
        }
    }
}

bool node_depends(const struct CUgraphNode_st *node, const struct CUgraphNode_st *on) {
    for (size_t i = 0; i < node->before_count; i++) {
        if (node->before[i] == on) {
            return true;
        }
    }
    return false;
}

static void end_node(CUgraphNode node) {
    link_remove(&node->of_graph);
    graph_op_drop(node->op);
    free(node->before);
    node->before = NULL;
    handle_end(node, HANDLE_NODE);
}

CUresult graph_add(CUgraph graph, const CUgraphNode *before, size_t count,
                   const struct stream_op *op, CUgraphNode *out) {
    SG_REQUIRE(handle_given(graph, HANDLE_GRAPH) && (before || count == 0),
               CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        SG_REQUIRE(handle_given(before[i], HANDLE_NODE) && before[i]->graph == graph,
                   CUDA_ERROR_INVALID_VALUE);
    }
    CUgraphNode node = handle_new(HANDLE_NODE, sizeof *node);
    if (!node) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    link_init(&node->of_graph);
    node->op = graph_op_keep(op);
    if (!node->op) {
        handle_end(node, HANDLE_NODE);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->graph = graph;
    node->number = graph->made++;
    link_add(&graph->nodes, &node->of_graph);
    for (size_t i = 0; i < count; i++) {
        if (node_depend(node, before[i]) != CUDA_SUCCESS) {
            end_node(node);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    *out = node;
    return CUDA_SUCCESS;
}

void graph_end(CUgraph graph) {
    while (graph->nodes.next != &graph->nodes) {
        end_node(CONTAINER(graph->nodes.next, struct CUgraphNode_st, of_graph));
    }
    handle_end(graph, HANDLE_GRAPH);
}

static CUgraphNode copy_of(CUgraph clone, const struct CUgraphNode_st *origin) {
    CUgraphNode node;

    EACH_NODE (node, clone) {
        if (node->origin == origin) {
            return node;
        }
    }
    return NULL;
}

CUgraph graph_clone(CUgraph graph) {
    CUgraph clone = graph_new();
    CUgraphNode node, copy;
    bool ok = clone != NULL;

    if (ok) {
        EACH_NODE (node, graph) {
            ok = ok && graph_add(clone, NULL, 0, node->op, &copy) == CUDA_SUCCESS;
            if (ok) {
                copy->origin = node;
            }
        }
    }
    if (ok) {
        EACH_NODE (node, graph) {
            for (size_t i = 0; i < node->before_count; i++) {
                ok = ok && node_depend(copy_of(clone, node), copy_of(clone, node->before[i])) ==
                               CUDA_SUCCESS;
            }
        }
    }
    if (!ok && clone) {
        graph_end(clone);
        return NULL;
    }
    return clone;
}

/* ---- entries ---- */

#define WITH_GRAPHS(statement)                                                                     \
    do {                                                                                           \
        pthread_mutex_lock(&graph_lock);                                                           \
        statement;                                                                                 \
        pthread_mutex_unlock(&graph_lock);                                                         \
    } while (0)

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags) {
    SG_READY();
    SG_REQUIRE(graph && flags == 0, CUDA_ERROR_INVALID_VALUE);
    CUgraph made = graph_new();
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *graph = made;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
    SG_READY();
    SG_REQUIRE(handle_given(graph, HANDLE_GRAPH) && !graph->is_child, CUDA_ERROR_INVALID_VALUE);
    WITH_GRAPHS(graph_end(graph));
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode node) {
    SG_READY();
    SG_REQUIRE(handle_given(node, HANDLE_NODE), CUDA_ERROR_INVALID_VALUE);
    /* Memory nodes cannot be removed, as documented. */
    SG_REQUIRE(node->op->kind != OP_ALLOC && node->op->kind != OP_FREE, CUDA_ERROR_NOT_SUPPORTED);
    CUgraphNode other;
    pthread_mutex_lock(&graph_lock);
    EACH_NODE (other, node->graph) {
        forget_dependency(other, node);
    }
    end_node(node);
    pthread_mutex_unlock(&graph_lock);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *clone, CUgraph graph) {
    SG_READY();
    SG_REQUIRE(clone && handle_given(graph, HANDLE_GRAPH), CUDA_ERROR_INVALID_VALUE);
    CUgraph made;
    WITH_GRAPHS(made = graph_clone(graph));
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *clone = made;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *found, CUgraphNode node, CUgraph clone) {
    SG_READY();
    SG_REQUIRE(found && handle_given(node, HANDLE_NODE) && handle_given(clone, HANDLE_GRAPH),
               CUDA_ERROR_INVALID_VALUE);
    CUgraphNode copy;
    WITH_GRAPHS(copy = copy_of(clone, node));
    SG_REQUIRE(copy, CUDA_ERROR_INVALID_VALUE);
    *found = copy;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetId(CUgraph graph, unsigned int *id) {
    SG_READY();
    SG_REQUIRE(id && handle_given(graph, HANDLE_GRAPH), CUDA_ERROR_INVALID_VALUE);
    *id = graph->id;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetContainingGraph(CUgraphNode node, CUgraph *graph) {
    SG_READY();
    SG_REQUIRE(graph && handle_given(node, HANDLE_NODE), CUDA_ERROR_INVALID_VALUE);
    *graph = node->graph;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetLocalId(CUgraphNode node, unsigned int *id) {
    SG_READY();
    SG_REQUIRE(id && handle_given(node, HANDLE_NODE), CUDA_ERROR_INVALID_VALUE);
    *id = node->number;
    return CUDA_SUCCESS;
}

static CUresult change_dependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                    size_t count, bool add) {
    SG_REQUIRE(graph, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    SG_REQUIRE(handle_given(graph, HANDLE_GRAPH) && (count == 0 || (from && to)),
               CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        SG_REQUIRE(handle_given(from[i], HANDLE_NODE) && handle_given(to[i], HANDLE_NODE) &&
                       from[i]->graph == graph && to[i]->graph == graph && from[i] != to[i] &&
                       node_depends(to[i], from[i]) != add,
                   CUDA_ERROR_INVALID_VALUE);
    }
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&graph_lock);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (add) {
            result = node_depend(to[i], from[i]);
        } else {
            forget_dependency(to[i], from[i]);
        }
    }
    pthread_mutex_unlock(&graph_lock);
    return result;
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t count) {
    return change_dependencies(graph, from, to, count, true);
}

/* Edges carry data only for programmatic launches, which the time model does not distinguish. */
CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *data, size_t count) {
    (void)data;
    return change_dependencies(graph, from, to, count, true);
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t count) {
    return change_dependencies(graph, from, to, count, false);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *data, size_t count) {
    (void)data;
    return change_dependencies(graph, from, to, count, false);
}
