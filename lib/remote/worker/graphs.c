/* Records that add nodes, and that change them in a graph and in an executable graph. */
#include "remote/worker/graphs.h"

#include <stdlib.h>

/* What a call does, and to which kind of node. */
struct facts {
    enum { ADDS, CHANGES, CHANGES_EXEC } what;
    int type; /* ANY where the record says it */
    CUresult (*call)(const struct remote_cuda_driver *cuda, struct node *node);
};

#define ANY (-1)

static bool take(struct remote_decoder *decoder, const struct facts *facts, struct node *node) {
    CUgraphNodeParams *form;

    if (!remote_words(decoder, NODE_WORDS)) {
        return false;
    }
    node->count = decoder->words[NODE_COUNT];
    if (facts->what == ADDS) {
        node->graph = (CUgraph)remote_handle(decoder, NODE_OWNER, REMOTE_KIND_CUgraph);
        remote_make_number(decoder, NODE_GIVEN_MADE, NODE_MADE, REMOTE_KIND_CUgraphNode);
        node->out = remote_is_given(decoder, NODE_GIVEN_MADE) ? &node->made : NULL;
    } else {
        node->node = (CUgraphNode)remote_handle(decoder, NODE_NODE, REMOTE_KIND_CUgraphNode);
    }
    if (facts->what == CHANGES_EXEC) {
        node->exec = (CUgraphExec)remote_handle(decoder, NODE_OWNER, REMOTE_KIND_CUgraphExec);
    }
    node->before =
        remote_in_handles(decoder, NODE_GIVEN_BEFORE, REMOTE_KIND_CUgraphNode, node->count);
    node->edges = remote_in(decoder, NODE_GIVEN_EDGES, node->count, sizeof *node->edges);
    node->form = form = remote_in(decoder, NODE_GIVEN_PARAMS, 1, sizeof *form);
    if (form && facts->type != ANY && (int)form->type != facts->type) {
        return false;
    }
    if (form) {
        node_take_params(decoder, node);
    }
    return true;
}

static enum remote_outcome decode(struct remote_decoder *decoder, const struct facts *facts,
                                  bool has_function) {
    struct node node = {0};

    if (!take(decoder, facts, &node)) {
        return REMOTE_GARBLED;
    }
    if (!remote_taken(decoder, has_function)) {
        free(node.each);
        return remote_not_called(decoder);
    }
    CUresult result = facts->call(decoder->cuda, &node);
    free(node.each);
    remote_answer(decoder, (int32_t)result);
    remote_give_made(decoder, NODE_GIVEN_MADE, NODE_MADE, REMOTE_KIND_CUgraphNode,
                     (uint64_t)node.made);
    if (node.form && node.form->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        remote_give(decoder, NODE_GIVEN_ADDRESS, &node.form->alloc.dptr,
                    sizeof node.form->alloc.dptr, false);
    }
    return remote_finish(decoder);
}

/* The parameters of one kind of node; NULL where the program gave none. */
#define MEMBER(n, member) ((n)->form ? &(n)->form->member : NULL)
#define CONTEXT(n) ((n)->form ? (n)->form->memcpy.copyCtx : NULL)

/* A decoder, and how it calls the driver. */
#define NODE(name, what, type, ...)                                                                \
    static CUresult call_##name(const struct remote_cuda_driver *cuda, struct node *n) {           \
        return cuda->name(__VA_ARGS__);                                                            \
    }                                                                                              \
    enum remote_outcome remote_hand_##name(struct remote_decoder *decoder) {                       \
        static const struct facts facts = {what, type, call_##name};                               \
        return decode(decoder, &facts, decoder->cuda->name != NULL);                               \
    }
#define ADD(name, kind, member)                                                                    \
    NODE(name, ADDS, CU_GRAPH_NODE_TYPE_##kind, n->out, n->graph, n->before, n->count,             \
         MEMBER(n, member))
#define SET(name, kind, member)                                                                    \
    NODE(name, CHANGES, CU_GRAPH_NODE_TYPE_##kind, n->node, MEMBER(n, member))
#define EXEC_SET(name, kind, member)                                                               \
    NODE(name, CHANGES_EXEC, CU_GRAPH_NODE_TYPE_##kind, n->exec, n->node, MEMBER(n, member))

/* The older parameters of a kernel are the beginning of the newer. */
#define OLDER(n) ((const CUDA_KERNEL_NODE_PARAMS_v1 *)(const void *)MEMBER(n, kernel))

NODE(cuGraphAddKernelNode, ADDS, CU_GRAPH_NODE_TYPE_KERNEL, n->out, n->graph, n->before, n->count,
     OLDER(n))
ADD(cuGraphAddKernelNode_v2, KERNEL, kernel)
ADD(cuGraphAddHostNode, HOST, host)
ADD(cuGraphAddBatchMemOpNode, BATCH_MEM_OP, memOp)
ADD(cuGraphAddMemAllocNode, MEM_ALLOC, alloc)
NODE(cuGraphAddMemcpyNode, ADDS, CU_GRAPH_NODE_TYPE_MEMCPY, n->out, n->graph, n->before, n->count,
     MEMBER(n, memcpy.copyParams), CONTEXT(n))
NODE(cuGraphAddNode, ADDS, ANY, n->out, n->graph, n->before, n->count, n->form)
NODE(cuGraphAddNode_v2, ADDS, ANY, n->out, n->graph, n->before, n->edges, n->count, n->form)
NODE(cuGraphAddNode_v3, ADDS, ANY, n->out, n->graph, n->before, n->edges, n->count, n->form)
NODE(cuGraphKernelNodeSetParams, CHANGES, CU_GRAPH_NODE_TYPE_KERNEL, n->node, OLDER(n))
SET(cuGraphKernelNodeSetParams_v2, KERNEL, kernel)
SET(cuGraphHostNodeSetParams, HOST, host)
SET(cuGraphMemcpyNodeSetParams, MEMCPY, memcpy.copyParams)
SET(cuGraphBatchMemOpNodeSetParams, BATCH_MEM_OP, memOp)
NODE(cuGraphNodeSetParams, CHANGES, ANY, n->node, n->form)
NODE(cuGraphNodeSetParams_v2, CHANGES, ANY, n->node, n->form)
NODE(cuGraphExecKernelNodeSetParams, CHANGES_EXEC, CU_GRAPH_NODE_TYPE_KERNEL, n->exec, n->node,
     OLDER(n))
EXEC_SET(cuGraphExecKernelNodeSetParams_v2, KERNEL, kernel)
EXEC_SET(cuGraphExecHostNodeSetParams, HOST, host)
EXEC_SET(cuGraphExecBatchMemOpNodeSetParams, BATCH_MEM_OP, memOp)
NODE(cuGraphExecMemcpyNodeSetParams, CHANGES_EXEC, CU_GRAPH_NODE_TYPE_MEMCPY, n->exec, n->node,
     MEMBER(n, memcpy.copyParams), CONTEXT(n))
NODE(cuGraphExecNodeSetParams, CHANGES_EXEC, ANY, n->exec, n->node, n->form)
