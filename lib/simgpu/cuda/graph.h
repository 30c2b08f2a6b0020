/* Graphs, their nodes and executable forms. One lock guards the structure of all graphs; then comes
 * that of an executable graph, which is held while it is launched, then the work lock. */
#ifndef SIMGPU_CUDA_GRAPH_H
#define SIMGPU_CUDA_GRAPH_H

#include "simgpu/cuda/driver.h"

struct CUgraphNode_st {
    struct handle handle;
    CUgraph graph;
    struct stream_op *op;
    CUgraphNode *before; /* what it depends on */
    size_t before_count;
    CUgraphNode origin; /* in a clone: the node it was made from */
    unsigned number;    /* place in the order of creation */
    uint32_t step;      /* while an executable graph is made: the step that it ends with */
    unsigned mark;      /* of walks over the graph */
    struct link of_graph;
};

struct CUgraph_st {
    struct handle handle;
    unsigned id;
    unsigned made; /* nodes ever added */
    bool is_child; /* owned by a node */
    bool conditional;
    struct link nodes; /* in order of creation */
};

/* One operation of an executable graph. A child graph is the steps of its nodes between two empty
 * ones. */
struct step {
    CUgraphNode node; /* in the graph it was made from; NULL for the begin of a child graph */
    struct stream_op *op;
    bool enabled;
    uint32_t *before; /* the steps that it comes after */
    size_t before_count;
    struct sg_work work; /* of the launch under way */
};

struct CUgraphExec_st {
    struct handle handle;
    pthread_mutex_t lock;
    unsigned id;
    cuuint64_t flags;
    struct step *steps; /* in an order that respects all dependencies */
    size_t count;
};

extern pthread_mutex_t graph_lock;

/* graph.c; the graph lock. */
CUgraph graph_new(void);
void graph_end(CUgraph graph);
CUgraph graph_clone(CUgraph graph);
/* Adds a node that does what op says, whose arguments are copied. */
CUresult graph_add(CUgraph graph, const CUgraphNode *before, size_t count,
                   const struct stream_op *op, CUgraphNode *out);
bool node_depends(const struct CUgraphNode_st *node, const struct CUgraphNode_st *on);
CUresult node_depend(CUgraphNode node, CUgraphNode on);
/* A copy of an operation for a node or an executable graph, child graphs included. */
struct stream_op *graph_op_keep(const struct stream_op *op);
void graph_op_drop(struct stream_op *op);

/* graph_memory.c: addresses of memory nodes live while a node, an executable graph or memory uses
 * them. */
CUresult graph_memory_reserve(struct device *device, uint64_t bytes, CUdeviceptr *out);
void graph_memory_use(CUdeviceptr address);
void graph_memory_unuse(CUdeviceptr address);
bool graph_memory_is(CUdeviceptr address);
/* Whether all of it is memory of one node, there or not. */
bool graph_memory_covers(CUdeviceptr address, uint64_t bytes);
/* What the operations do when the graph runs; the memory lock. */
CUresult graph_memory_map(CUdeviceptr address);
CUresult graph_memory_unmap(struct range *range);

#define EACH_NODE(node, graph)                                                                     \
    for (struct link *at_##node = (graph)->nodes.next;                                             \
         at_##node != &(graph)->nodes &&                                                           \
         ((node) = CONTAINER(at_##node, struct CUgraphNode_st, of_graph)) != NULL;                 \
         at_##node = at_##node->next)

#endif
