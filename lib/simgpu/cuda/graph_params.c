/* Parameters of nodes: reading them, and changing them in a graph and in an executable graph. */
#include "simgpu/cuda/graph_nodes.h"

#include <string.h>

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
    static const CUgraphNodeType types[] = {
        [OP_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY,     [OP_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
        [OP_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,     [OP_FILL] = CU_GRAPH_NODE_TYPE_MEMSET,
        [OP_HOST] = CU_GRAPH_NODE_TYPE_HOST,       [OP_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        [OP_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT, [OP_VALUES] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        [OP_ALLOC] = CU_GRAPH_NODE_TYPE_MEM_ALLOC, [OP_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE,
        [OP_CHILD] = CU_GRAPH_NODE_TYPE_GRAPH,
    };

    SG_READY();
    SG_REQUIRE(type && handle_given(node, HANDLE_NODE), CUDA_ERROR_INVALID_VALUE);
    *type = types[node->op->kind];
    return CUDA_SUCCESS;
}

/* The node's operation if it is of that kind. */
static CUresult of_kind(CUgraphNode node, enum op_kind kind, const void *out,
                        const struct stream_op **op) {
    SG_READY();
    SG_REQUIRE(out && handle_given(node, HANDLE_NODE) && node->op->kind == kind,
               CUDA_ERROR_INVALID_VALUE);
    *op = node->op;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *p) {
    const struct stream_op *op;

    SG_REQUIRE(node && p, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(of_kind(node, OP_KERNEL, p, &op));
    const struct launch *l = &op->launch;
    *p = (CUDA_KERNEL_NODE_PARAMS){.gridDimX = l->grid[0],
                                   .gridDimY = l->grid[1],
                                   .gridDimZ = l->grid[2],
                                   .blockDimX = l->block[0],
                                   .blockDimY = l->block[1],
                                   .blockDimZ = l->block[2],
                                   .sharedMemBytes = l->shared,
                                   .kernelParams = l->params};
    if (handle_is(l->function, HANDLE_KERNEL)) {
        p->kern = (CUkernel)l->function;
    } else {
        p->func = l->function;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *p) {
    CUDA_KERNEL_NODE_PARAMS wide;

    SG_REQUIRE(p, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(cuGraphKernelNodeGetParams_v2(node, &wide));
    memcpy(p, &wide, sizeof *p);
    if (wide.kern) {
        p->func = (CUfunction)wide.kern;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *p) {
    const struct stream_op *op;

    SG_TRY(of_kind(node, OP_FILL, p, &op));
    *p = (CUDA_MEMSET_NODE_PARAMS){op->fill.to,      op->fill.pitch, op->fill.value,
                                   op->fill.element, op->fill.width, op->fill.height};
    return CUDA_SUCCESS;
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *p) {
    const struct stream_op *op;

    SG_REQUIRE(node && p, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(of_kind(node, OP_HOST, p, &op));
    *p = (CUDA_HOST_NODE_PARAMS){op->host.function, op->host.data};
    return CUDA_SUCCESS;
}

static void describe_place(const struct placement *place, CUmemorytype *type, CUdeviceptr *device,
                           const void **host, CUarray *array) {
    *type = place->type;
    *array = place->array;
    if (place->type == CU_MEMORYTYPE_HOST) {
        *host = (const void *)(uintptr_t)place->address;
    } else {
        *device = place->address;
    }
}

/* Offsets of linear sides are part of the address by now. */
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *p) {
    const struct stream_op *op;
    const void *target = NULL;

    SG_TRY(of_kind(node, OP_COPY, p, &op));
    const struct copy *c = &op->copy;
    *p = (CUDA_MEMCPY3D){.srcPitch = c->from.pitch,
                         .dstPitch = c->to.pitch,
                         .WidthInBytes = c->width,
                         .Height = c->height,
                         .Depth = c->depth};
    p->srcHeight = c->from.pitch ? c->from.slice / c->from.pitch : 0;
    p->dstHeight = c->to.pitch ? c->to.slice / c->to.pitch : 0;
    describe_place(&c->from, &p->srcMemoryType, &p->srcDevice, &p->srcHost, &p->srcArray);
    describe_place(&c->to, &p->dstMemoryType, &p->dstDevice, &target, &p->dstArray);
    p->dstHost = (void *)(uintptr_t)target;
    if (c->from.array) {
        p->srcXInBytes = c->from.x;
        p->srcY = c->from.y;
        p->srcZ = c->from.z;
    }
    if (c->to.array) {
        p->dstXInBytes = c->to.x;
        p->dstY = c->to.y;
        p->dstZ = c->to.z;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *child) {
    const struct stream_op *op;

    SG_TRY(of_kind(node, OP_CHILD, child, &op));
    *child = op->child;
    return CUDA_SUCCESS;
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event) {
    const struct stream_op *op;

    SG_REQUIRE(node && event, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(of_kind(node, OP_RECORD, event, &op));
    *event = op->event;
    return CUDA_SUCCESS;
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event) {
    const struct stream_op *op;

    SG_REQUIRE(node && event, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(of_kind(node, OP_WAIT, event, &op));
    *event = op->event;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address) {
    const struct stream_op *op;

    SG_REQUIRE(node && address, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(of_kind(node, OP_FREE, address, &op));
    *address = op->memory.address;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *p) {
    const struct stream_op *op;

    SG_REQUIRE(node && p, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(of_kind(node, OP_ALLOC, p, &op));
    *p = (CUDA_MEM_ALLOC_NODE_PARAMS){.bytesize = op->memory.bytes, .dptr = op->memory.address};
    p->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    p->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    sg_memory_lock();
    struct range *range = range_of(op->memory.address);
    p->poolProps.location.id = range ? range->device->ordinal : 0;
    sg_memory_unlock();
    return CUDA_SUCCESS;
}

/* Puts a new operation of the same kind in place of the old. */
static CUresult replace(struct stream_op **at, const struct stream_op *op) {
    SG_REQUIRE((*at)->kind == op->kind, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(op_check(op, true));
    struct stream_op *kept = graph_op_keep(op);
    if (!kept) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    graph_op_drop(*at);
    *at = kept;
    return CUDA_SUCCESS;
}

static CUresult set(CUgraphNode node, const struct stream_op *op) {
    SG_READY();
    SG_REQUIRE(handle_given(node, HANDLE_NODE), CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&graph_lock);
    CUresult result = replace(&node->op, op);
    pthread_mutex_unlock(&graph_lock);
    return result;
}

static CUresult exec_set(CUgraphExec exec, CUgraphNode node, const struct stream_op *op) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    SG_READY();
    SG_REQUIRE(handle_given(exec, HANDLE_EXEC) && handle_given(node, HANDLE_NODE),
               CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&graph_lock);
    pthread_mutex_lock(&exec->lock);
    for (size_t i = 0; i < exec->count; i++) {
        if (exec->steps[i].node == node) {
            result = replace(&exec->steps[i].op, op);
        }
    }
    pthread_mutex_unlock(&exec->lock);
    pthread_mutex_unlock(&graph_lock);
    return result;
}

/* Entries that change a node of a graph, and that node in an executable graph. */
#define SET(name, PARAMETER, make)                                                                 \
    CUresult name(CUgraphNode node, PARAMETER) {                                                   \
        struct stream_op op;                                                                       \
        SG_TRY(make);                                                                              \
        return set(node, &op);                                                                     \
    }
#define EXEC_SET(name, PARAMETER, make)                                                            \
    CUresult name(CUgraphExec exec, CUgraphNode node, PARAMETER) {                                 \
        struct stream_op op;                                                                       \
        SG_TRY(make);                                                                              \
        return exec_set(exec, node, &op);                                                          \
    }
#define EXEC_SET_IN_CONTEXT(name, PARAMETER, make)                                                 \
    CUresult name(CUgraphExec exec, CUgraphNode node, PARAMETER, CUcontext ctx) {                  \
        struct stream_op op;                                                                       \
        (void)ctx;                                                                                 \
        SG_TRY(make);                                                                              \
        return exec_set(exec, node, &op);                                                          \
    }

SET(cuGraphKernelNodeSetParams, const CUDA_KERNEL_NODE_PARAMS_v1 *p, op_of_kernel_v1(p, &op))
SET(cuGraphKernelNodeSetParams_v2, const CUDA_KERNEL_NODE_PARAMS *p, op_of_kernel(p, &op))
SET(cuGraphMemcpyNodeSetParams, const CUDA_MEMCPY3D *p, op_of_copy(p, &op))
SET(cuGraphMemsetNodeSetParams, const CUDA_MEMSET_NODE_PARAMS *p, op_of_fill(p, &op))
SET(cuGraphHostNodeSetParams, const CUDA_HOST_NODE_PARAMS *p, op_of_host(p, &op))
SET(cuGraphEventRecordNodeSetEvent, CUevent event, op_of_event(OP_RECORD, event, &op))
SET(cuGraphEventWaitNodeSetEvent, CUevent event, op_of_event(OP_WAIT, event, &op))
SET(cuGraphBatchMemOpNodeSetParams, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, op_of_values(p, &op))
SET(cuGraphNodeSetParams, CUgraphNodeParams *p, op_of_params(p, &op))
SET(cuGraphNodeSetParams_v2, CUgraphNodeParams *p, op_of_params(p, &op))
EXEC_SET(cuGraphExecKernelNodeSetParams, const CUDA_KERNEL_NODE_PARAMS_v1 *p,
         op_of_kernel_v1(p, &op))
EXEC_SET(cuGraphExecKernelNodeSetParams_v2, const CUDA_KERNEL_NODE_PARAMS *p, op_of_kernel(p, &op))
EXEC_SET_IN_CONTEXT(cuGraphExecMemcpyNodeSetParams, const CUDA_MEMCPY3D *p, op_of_copy(p, &op))
EXEC_SET_IN_CONTEXT(cuGraphExecMemsetNodeSetParams, const CUDA_MEMSET_NODE_PARAMS *p,
                    op_of_fill(p, &op))
EXEC_SET(cuGraphExecHostNodeSetParams, const CUDA_HOST_NODE_PARAMS *p, op_of_host(p, &op))
EXEC_SET(cuGraphExecEventRecordNodeSetEvent, CUevent event, op_of_event(OP_RECORD, event, &op))
EXEC_SET(cuGraphExecEventWaitNodeSetEvent, CUevent event, op_of_event(OP_WAIT, event, &op))
EXEC_SET(cuGraphExecBatchMemOpNodeSetParams, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p,
         op_of_values(p, &op))
EXEC_SET(cuGraphExecNodeSetParams, CUgraphNodeParams *p, op_of_params(p, &op))

/* Attributes of kernel nodes are hints about caches and clusters. */
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                       const CUkernelNodeAttrValue *value) {
    const struct stream_op *op;

    (void)id;
    return of_kind(node, OP_KERNEL, value, &op);
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
    const struct stream_op *op;

    SG_TRY(of_kind(to, OP_KERNEL, to, &op));
    return of_kind(from, OP_KERNEL, from, &op);
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                       CUkernelNodeAttrValue *value) {
    const struct stream_op *op;

    (void)id;
    SG_TRY(of_kind(node, OP_KERNEL, value, &op));
    memset(value, 0, sizeof *value);
    return CUDA_SUCCESS;
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *p) {
    const struct stream_op *op;

    SG_REQUIRE(node && p, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(of_kind(node, OP_VALUES, p, &op));
    *p = (CUDA_BATCH_MEM_OP_NODE_PARAMS){.count = op->values.count, .paramArray = op->values.list};
    return CUDA_SUCCESS;
}
