/* Nodes of graphs: adding them, and changing them in a graph and in an executable graph. */
#include "remote/client/graphs.h"
#include "remote/generated/cuda_stubs.h"

#include <string.h>

/* So many addresses in a row that mean something else in the client are refused. */
#define MOST_REFUSED 16

/* Sends the record, and reads what it answers but for what it has made. */
static void ask(struct node_call *n, const CUgraphNodeParams *p, struct remote_reply *r,
                CUdeviceptr *address) {
    if (p && p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        remote_given(&n->call, NODE_GIVEN_ADDRESS, p);
    }
    if (remote_ask(&n->call, r)) {
        remote_get(&n->call, r, NODE_GIVEN_ADDRESS, address, sizeof *address, false);
    }
}

/* Whether the call was made. An earlier failure may be told though it was. */
static bool finish(struct node_call *n, CUgraphNodeParams *p, const struct remote_reply *r,
                   CUdeviceptr address, CUresult *result) {
    bool made = !n->call.fault && !r->garbled && r->head.result == 0;

    *result = (CUresult)remote_end(&n->call, r);
    if (made && p && p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        p->alloc.dptr = address;
    }
    node_end(n, made);
    return made;
}

static void begin(struct node_call *n, enum remote_number number) {
    n->packed = NULL;
    n->function = 0;
    remote_begin(&n->call, number, NODE_WORDS);
}

static bool add_one(enum remote_number number, CUgraphNode *node, CUgraph graph,
                    const CUgraphNode *before, const CUgraphEdgeData *edges, size_t count,
                    CUgraphNodeParams *p, CUresult *result) {
    struct node_call n;
    struct remote_reply r;
    CUdeviceptr address = 0;

    begin(&n, number);
    remote_use(&n.call, NODE_OWNER, REMOTE_KIND_CUgraph, (uint64_t)graph);
    n.call.words[NODE_COUNT] = count;
    remote_handles(&n.call, NODE_GIVEN_BEFORE, REMOTE_KIND_CUgraphNode, before, count);
    remote_array(&n.call, NODE_GIVEN_EDGES, edges, count, sizeof *edges);
    node_params(&n, p);
    remote_make(&n.call, NODE_GIVEN_MADE, NODE_MADE, REMOTE_KIND_CUgraphNode, node);
    ask(&n, p, &r, &address);
    remote_get_made(&n.call, &r, NODE_GIVEN_MADE, NODE_MADE, REMOTE_KIND_CUgraphNode, node);
    return finish(&n, p, &r, address, result);
}

/* The client notes where a node's memory is. Another node is made where its address means something else already; those
 * before it are kept so long, because the driver would give their addresses again. */
static CUresult add(enum remote_number number, CUgraphNode *node, CUgraph graph,
                    const CUgraphNode *before, const CUgraphEdgeData *edges, size_t count,
                    CUgraphNodeParams *p) {
    CUgraphNode refused[MOST_REFUSED];
    unsigned refusals = 0;
    CUresult result;

    while (add_one(number, node, graph, before, edges, count, p, &result) && p &&
           p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        const struct remote_range range = {
            .start = p->alloc.dptr, .size = p->alloc.bytesize, .kind = REMOTE_RANGE_GRAPH};
        if (remote_range_add(&range)) {
            break;
        }
        refused[refusals++] = *node;
        if (refusals == MOST_REFUSED) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
            break;
        }
    }
    while (refusals) {
        REMOTE_STUB(cuGraphDestroyNode)(refused[--refusals]);
    }
    return result;
}

static CUresult set(enum remote_number number, CUgraphNode node, CUgraphNodeParams *p) {
    struct node_call n;
    struct remote_reply r;
    CUdeviceptr address = 0;
    CUresult result;

    begin(&n, number);
    remote_use(&n.call, NODE_NODE, REMOTE_KIND_CUgraphNode, (uint64_t)node);
    node_params(&n, p);
    ask(&n, p, &r, &address);
    finish(&n, p, &r, address, &result);
    return result;
}

static CUresult exec_set(enum remote_number number, CUgraphExec exec, CUgraphNode node,
                         CUgraphNodeParams *p) {
    struct node_call n;
    struct remote_reply r;
    CUdeviceptr address = 0;
    CUresult result;

    begin(&n, number);
    remote_use(&n.call, NODE_OWNER, REMOTE_KIND_CUgraphExec, (uint64_t)exec);
    remote_use(&n.call, NODE_NODE, REMOTE_KIND_CUgraphNode, (uint64_t)node);
    node_params(&n, p);
    ask(&n, p, &r, &address);
    finish(&n, p, &r, address, &result);
    return result;
}

/* The general form of parameters of one kind of node; NULL stays NULL. */
#define GENERAL(kind, member)                                                                      \
    CUgraphNodeParams general = {.type = CU_GRAPH_NODE_TYPE_##kind};                               \
    if (p) {                                                                                       \
        memcpy(&general.member, p, sizeof *p);                                                     \
    }

/* Entries for one kind of node: `name(node, graph, before, count, p)` and those that change it. */
#define ADD(name, TYPE, kind, member)                                                              \
    CUresult name(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,       \
                  const TYPE *p) {                                                                 \
        GENERAL(kind, member)                                                                      \
        return add(REMOTE_##name, node, graph, before, NULL, count, p ? &general : NULL);          \
    }
#define SET(name, TYPE, kind, member)                                                              \
    CUresult name(CUgraphNode node, const TYPE *p) {                                               \
        GENERAL(kind, member)                                                                      \
        return set(REMOTE_##name, node, p ? &general : NULL);                                      \
    }
#define EXEC_SET(name, TYPE, kind, member)                                                         \
    CUresult name(CUgraphExec exec, CUgraphNode node, const TYPE *p) {                             \
        GENERAL(kind, member)                                                                      \
        return exec_set(REMOTE_##name, exec, node, p ? &general : NULL);                           \
    }

ADD(cuGraphAddKernelNode, CUDA_KERNEL_NODE_PARAMS_v1, KERNEL, kernel)
ADD(cuGraphAddKernelNode_v2, CUDA_KERNEL_NODE_PARAMS, KERNEL, kernel)
ADD(cuGraphAddHostNode, CUDA_HOST_NODE_PARAMS, HOST, host)
ADD(cuGraphAddBatchMemOpNode, CUDA_BATCH_MEM_OP_NODE_PARAMS, BATCH_MEM_OP, memOp)
SET(cuGraphKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1, KERNEL, kernel)
SET(cuGraphKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS, KERNEL, kernel)
SET(cuGraphHostNodeSetParams, CUDA_HOST_NODE_PARAMS, HOST, host)
SET(cuGraphMemcpyNodeSetParams, CUDA_MEMCPY3D, MEMCPY, memcpy.copyParams)
SET(cuGraphBatchMemOpNodeSetParams, CUDA_BATCH_MEM_OP_NODE_PARAMS, BATCH_MEM_OP, memOp)
EXEC_SET(cuGraphExecKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1, KERNEL, kernel)
EXEC_SET(cuGraphExecKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS, KERNEL, kernel)
EXEC_SET(cuGraphExecHostNodeSetParams, CUDA_HOST_NODE_PARAMS, HOST, host)
EXEC_SET(cuGraphExecBatchMemOpNodeSetParams, CUDA_BATCH_MEM_OP_NODE_PARAMS, BATCH_MEM_OP, memOp)

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                              size_t count, const CUDA_MEMCPY3D *p, CUcontext context) {
    GENERAL(MEMCPY, memcpy.copyParams)
    general.memcpy.copyCtx = context;
    return add(REMOTE_cuGraphAddMemcpyNode, node, graph, before, NULL, count, p ? &general : NULL);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *p,
                                        CUcontext context) {
    GENERAL(MEMCPY, memcpy.copyParams)
    general.memcpy.copyCtx = context;
    return exec_set(REMOTE_cuGraphExecMemcpyNodeSetParams, exec, node, p ? &general : NULL);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *p) {
    GENERAL(MEM_ALLOC, alloc)
    CUresult result =
        add(REMOTE_cuGraphAddMemAllocNode, node, graph, before, NULL, count, p ? &general : NULL);
    if (p && result == CUDA_SUCCESS) {
        p->dptr = general.alloc.dptr;
    }
    return result;
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,
                        CUgraphNodeParams *p) {
    return add(REMOTE_cuGraphAddNode, node, graph, before, NULL, count, p);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                           const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *p) {
    return add(REMOTE_cuGraphAddNode_v2, node, graph, before, edges, count, p);
}

CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                           const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *p) {
    return add(REMOTE_cuGraphAddNode_v3, node, graph, before, edges, count, p);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *p) {
    return set(REMOTE_cuGraphNodeSetParams, node, p);
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams *p) {
    return set(REMOTE_cuGraphNodeSetParams_v2, node, p);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *p) {
    return exec_set(REMOTE_cuGraphExecNodeSetParams, exec, node, p);
}
