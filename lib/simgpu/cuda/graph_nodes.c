/* Nodes by kind: how each is added. */
#include "simgpu/cuda/graph_nodes.h"

#include <string.h>

static CUresult add(CUgraphNode *out, CUgraph graph, const CUgraphNode *before, size_t count,
                    const struct stream_op *op) {
    SG_READY();
    SG_REQUIRE(out, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(op_check(op, true));
    pthread_mutex_lock(&graph_lock);
    CUresult result = graph_add(graph, before, count, op, out);
    pthread_mutex_unlock(&graph_lock);
    return result;
}

CUresult op_of_kernel(const CUDA_KERNEL_NODE_PARAMS *p, struct stream_op *op) {
    SG_REQUIRE(p, CUDA_ERROR_INVALID_VALUE);
    *op = (struct stream_op){.kind = OP_KERNEL,
                             .launch = {.function = p->func ? p->func : (CUfunction)p->kern,
                                        .grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
                                        .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
                                        .shared = p->sharedMemBytes,
                                        .params = p->kernelParams}};
    return launch_check(&op->launch, p->extra);
}

CUresult op_of_kernel_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *p, struct stream_op *op) {
    SG_REQUIRE(p, CUDA_ERROR_INVALID_VALUE);
    CUDA_KERNEL_NODE_PARAMS wide = {0};
    memcpy(&wide, p, sizeof *p); /* the newer form begins with the older */
    return op_of_kernel(&wide, op);
}

CUresult op_of_copy(const CUDA_MEMCPY3D *p, struct stream_op *op) {
    SG_REQUIRE(p && p->srcLOD == 0 && p->dstLOD == 0, CUDA_ERROR_INVALID_VALUE);
    *op = (struct stream_op){.kind = OP_COPY, .copy = copy_of_3d(p)};
    return CUDA_SUCCESS;
}

CUresult op_of_fill(const CUDA_MEMSET_NODE_PARAMS *p, struct stream_op *op) {
    SG_REQUIRE(p, CUDA_ERROR_INVALID_VALUE);
    *op = (struct stream_op){.kind = OP_FILL,
                             .fill = {.to = p->dst,
                                      .pitch = p->pitch,
                                      .width = p->width,
                                      .height = p->height,
                                      .value = p->value,
                                      .element = p->elementSize}};
    return CUDA_SUCCESS;
}

CUresult op_of_host(const CUDA_HOST_NODE_PARAMS *p, struct stream_op *op) {
    SG_REQUIRE(p && p->fn, CUDA_ERROR_INVALID_VALUE);
    *op = (struct stream_op){.kind = OP_HOST, .host = {p->fn, NULL, p->userData}};
    return CUDA_SUCCESS;
}

CUresult op_of_event(enum op_kind kind, CUevent event, struct stream_op *op) {
    SG_REQUIRE(handle_given(event, HANDLE_EVENT), CUDA_ERROR_INVALID_VALUE);
    *op = (struct stream_op){.kind = kind, .event = event};
    return CUDA_SUCCESS;
}

CUresult op_of_values(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, struct stream_op *op) {
    SG_REQUIRE(p && p->count && p->paramArray, CUDA_ERROR_INVALID_VALUE);
    *op = (struct stream_op){.kind = OP_VALUES, .values = {p->count, p->paramArray}};
    return CUDA_SUCCESS;
}

/* Fixes the address of a memory node and writes it to the parameters. */
CUresult op_of_alloc(CUDA_MEM_ALLOC_NODE_PARAMS *p, struct stream_op *op) {
    SG_READY();
    SG_REQUIRE(p && p->poolProps.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                   p->poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE,
               CUDA_ERROR_INVALID_VALUE);
    struct device *device = sg_device(p->poolProps.location.id);
    SG_REQUIRE(device, CUDA_ERROR_INVALID_DEVICE);
    SG_TRY(graph_memory_reserve(device, p->bytesize, &p->dptr));
    *op = (struct stream_op){.kind = OP_ALLOC, .memory = {p->dptr, p->bytesize}};
    return CUDA_SUCCESS;
}

CUresult op_of_free(CUdeviceptr address, struct stream_op *op) {
    SG_READY();
    SG_REQUIRE(graph_memory_is(address), CUDA_ERROR_INVALID_VALUE);
    *op = (struct stream_op){.kind = OP_FREE, .memory = {.address = address}};
    return CUDA_SUCCESS;
}

CUresult op_of_child(CUgraph child, struct stream_op *op) {
    SG_REQUIRE(handle_given(child, HANDLE_GRAPH), CUDA_ERROR_INVALID_VALUE);
    *op = (struct stream_op){.kind = OP_CHILD, .child = child};
    return CUDA_SUCCESS;
}

/* The operation that the general parameters describe. */
CUresult op_of_params(CUgraphNodeParams *p, struct stream_op *op) {
    CUDA_MEMSET_NODE_PARAMS fill;

    SG_REQUIRE(p, CUDA_ERROR_INVALID_VALUE);
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return op_of_kernel(&p->kernel, op);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return op_of_copy(&p->memcpy.copyParams, op);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        memcpy(&fill, &p->memset, sizeof fill);
        return op_of_fill(&fill, op);
    case CU_GRAPH_NODE_TYPE_HOST:
        return op_of_host(&p->host, op);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return op_of_child(p->graph.graph, op);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        *op = (struct stream_op){.kind = OP_EMPTY};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return op_of_event(OP_WAIT, p->eventWait.event, op);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return op_of_event(OP_RECORD, p->eventRecord.event, op);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return op_of_alloc(&p->alloc, op);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return op_of_free(p->free.dptr, op);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return op_of_values(&p->memOp, op);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* Entries `name(node, graph, before, count, PARAMETER)` whose operation is made by one of the
 * above. Those of ADD_READY look first whether the driver is initialised. */
#define ADD(name, PARAMETER, make)                                                                 \
    CUresult name(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,       \
                  PARAMETER) {                                                                     \
        struct stream_op op;                                                                       \
        SG_TRY(make);                                                                              \
        return add(node, graph, before, count, &op);                                               \
    }
#define ADD_READY(name, PARAMETER, make)                                                           \
    ADD(name, PARAMETER, sg_ready() != CUDA_SUCCESS ? sg_ready() : make)
#define ADD_IN_CONTEXT(name, PARAMETER, make)                                                      \
    CUresult name(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,       \
                  PARAMETER, CUcontext ctx) {                                                      \
        struct stream_op op;                                                                       \
        SG_READY();                                                                                \
        SG_REQUIRE(!ctx || sg_context_given(ctx), CUDA_ERROR_INVALID_CONTEXT);                     \
        SG_TRY(make);                                                                              \
        return add(node, graph, before, count, &op);                                               \
    }

ADD_READY(cuGraphAddKernelNode, const CUDA_KERNEL_NODE_PARAMS_v1 *p, op_of_kernel_v1(p, &op))
ADD_READY(cuGraphAddKernelNode_v2, const CUDA_KERNEL_NODE_PARAMS *p, op_of_kernel(p, &op))
ADD_IN_CONTEXT(cuGraphAddMemcpyNode, const CUDA_MEMCPY3D *p, op_of_copy(p, &op))
ADD_IN_CONTEXT(cuGraphAddMemsetNode, const CUDA_MEMSET_NODE_PARAMS *p, op_of_fill(p, &op))
ADD(cuGraphAddHostNode, const CUDA_HOST_NODE_PARAMS *p, op_of_host(p, &op))
ADD(cuGraphAddEventRecordNode, CUevent event, op_of_event(OP_RECORD, event, &op))
ADD(cuGraphAddEventWaitNode, CUevent event, op_of_event(OP_WAIT, event, &op))
ADD(cuGraphAddBatchMemOpNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, op_of_values(p, &op))
ADD(cuGraphAddMemAllocNode, CUDA_MEM_ALLOC_NODE_PARAMS *p, op_of_alloc(p, &op))
ADD(cuGraphAddMemFreeNode, CUdeviceptr address, op_of_free(address, &op))
ADD_READY(cuGraphAddChildGraphNode, CUgraph child, op_of_child(child, &op))
ADD(cuGraphAddNode, CUgraphNodeParams *p, op_of_params(p, &op))

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                           const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *p) {
    (void)data;
    return cuGraphAddNode(node, graph, before, count, p);
}

CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                           const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *p) {
    (void)data;
    return cuGraphAddNode(node, graph, before, count, p);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                             size_t count) {
    SG_REQUIRE(node && graph, CUDA_ERROR_INVALID_VALUE);
    return add(node, graph, before, count, &(struct stream_op){.kind = OP_EMPTY});
}
