#include "remote/test/graphs_driver.h"

#include "remote/attribute.h"
#include "remote/node.h"
#include "remote/worker/session.h"
#include "test/check.h"

#include <string.h>

#define PARAMS 3u

unsigned char graphs_sum;
unsigned long graphs_called;
static unsigned char region[GRAPHS_REGION_BYTES];

bool remote_region_at(struct remote_worker *worker, uint64_t number, uint64_t offset, void **at,
                      uint64_t *room) {
    (void)worker;
    if (number != 1 || offset > GRAPHS_REGION_BYTES) {
        return false;
    }
    *at = region + offset;
    *room = GRAPHS_REGION_BYTES - offset;
    return true;
}

/* Reads memory that the driver was given, so that a sanitizer sees a byte too far. */
static void read_all(const void *at, uint64_t size) {
    for (uint64_t i = 0; at && i < size; i++) {
        graphs_sum = (unsigned char)(graphs_sum + ((const unsigned char *)at)[i]);
    }
}

/* The kernel has parameters of 8, 4 and 8 bytes. */
static CUresult place(CUfunction function, size_t index, size_t *at, size_t *size) {
    static const size_t places[PARAMS][2] = {{0, 8}, {8, 4}, {16, 8}};

    (void)function;
    if (index >= PARAMS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *at = places[index][0];
    *size = places[index][1];
    return CUDA_SUCCESS;
}

static CUresult place_of_kernel(CUkernel kernel, size_t index, size_t *at, size_t *size) {
    return place((CUfunction)kernel, index, at, size);
}

static void read_kernel(const CUDA_KERNEL_NODE_PARAMS *k) {
    for (unsigned i = 0; k->kernelParams && i < PARAMS; i++) {
        read_all(k->kernelParams[i], i == 1 ? 4 : 8);
    }
    if (k->extra) {
        CHECK(k->extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER && k->extra[4] == CU_LAUNCH_PARAM_END);
        read_all(k->extra[1], *(const size_t *)k->extra[3]);
    }
}

static void read_copy(const CUDA_MEMCPY3D *c) {
    uint64_t extent;

    if (c->srcMemoryType == CU_MEMORYTYPE_HOST) {
        CHECK(node_extent(c, true, &extent));
        read_all(c->srcHost, extent);
    }
    if (c->dstMemoryType == CU_MEMORYTYPE_HOST) {
        CHECK(node_extent(c, false, &extent));
        memset(c->dstHost, 1, extent);
    }
}

static void read_form(const CUgraphNodeParams *p) {
    read_all(p, sizeof *p);
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        read_kernel(&p->kernel);
        return;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        read_copy(&p->memcpy.copyParams);
        return;
    case CU_GRAPH_NODE_TYPE_HOST:
        CHECK(!p->host.fn == !p->host.userData);
        return;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        read_all(p->memOp.paramArray,
                 p->memOp.paramArray ? p->memOp.count * sizeof *p->memOp.paramArray : 0);
        return;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        CHECK(!p->alloc.poolProps.win32SecurityAttributes);
        read_all(p->alloc.accessDescs,
                 p->alloc.accessDescs ? p->alloc.accessDescCount * sizeof(CUmemAccessDesc) : 0);
        return;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        CHECK(!"the driver sees kinds that are refused");
        return;
    default:
        return;
    }
}

static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                    const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *p) {
    static uint64_t nodes = 0x60000;

    (void)graph;
    graphs_called++;
    if (p) {
        read_form(p);
    }
    read_all(before, before ? count * sizeof *before : 0);
    read_all(edges, edges ? count * sizeof *edges : 0);
    if (!node) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *node = (CUgraphNode)(nodes += 16);
    return CUDA_SUCCESS;
}

static CUresult add_plain(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,
                          CUgraphNodeParams *p) {
    return add(node, graph, before, NULL, count, p);
}

static CUresult add_kernel(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                           size_t count, const CUDA_KERNEL_NODE_PARAMS *p) {
    if (p) {
        read_kernel(p);
    }
    return add(node, graph, before, NULL, count, NULL);
}

static CUresult change_exec(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *p) {
    CUgraphNode made;

    (void)exec;
    (void)node;
    return add(&made, NULL, NULL, NULL, 0, p);
}

/* What drivers tell of nodes. */
CUgraphNodeParams graphs_told = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
static CUresult get(CUgraphNode node, CUgraphNodeParams *to) {
    (void)node;
    if (!to) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *to = graphs_told;
    return CUDA_SUCCESS;
}

static CUresult set_attribute(CUgraphNode node, CUkernelNodeAttrID id,
                              const CUkernelNodeAttrValue *value) {
    (void)node;
    CHECK((unsigned)id <= LAUNCH_ATTRIBUTE_LAST);
    read_all(value, value ? sizeof *value : 0);
    graphs_called++;
    return CUDA_SUCCESS;
}

static CUresult clusters(int *count, CUfunction function, const CUlaunchConfig *config) {
    (void)function;
    if (config) {
        read_all(config, sizeof *config);
        read_all(config->attrs, config->attrs ? config->numAttrs * sizeof *config->attrs : 0);
    }
    if (count) {
        *count = 1;
    }
    graphs_called++;
    return CUDA_SUCCESS;
}

static CUresult set_pool(CUmemoryPool pool, CUmemPool_attribute id, void *value) {
    (void)pool;
    read_all(value, value ? pool_value_bytes((uint32_t)id) : 0);
    graphs_called++;
    return CUDA_SUCCESS;
}

static CUresult launch_function(CUstream stream, CUhostFn function, void *data) {
    (void)stream;
    graphs_called++;
    return function && data ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                     const CUgraphNode **before, size_t *count) {
    static const CUgraphNode nodes[3] = {(CUgraphNode)0x11110, (CUgraphNode)0x22220, NULL};

    (void)stream;
    if (!status) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (id) {
        *id = 1;
    }
    if (graph) {
        *graph = (CUgraph)0x33330;
    }
    if (before) {
        *before = nodes;
    }
    if (count) {
        *count = 3;
    }
    return CUDA_SUCCESS;
}

/* One graph has a node with a graph, which has a node. */
static CUresult nodes_of(CUgraph graph, CUgraphNode *to, size_t *count) {
    const CUgraph parent = (CUgraph)GRAPHS_PARENT, child = (CUgraph)GRAPHS_CHILD;

    *count = graph == parent || graph == child;
    if (to && *count) {
        *to = (CUgraphNode)(graph == parent ? GRAPHS_PARENT_NODE : GRAPHS_CHILD_NODE);
    }
    return CUDA_SUCCESS;
}

static CUresult type_of(CUgraphNode node, CUgraphNodeType *type) {
    *type = node == (CUgraphNode)GRAPHS_PARENT_NODE ? CU_GRAPH_NODE_TYPE_GRAPH
                                                    : CU_GRAPH_NODE_TYPE_EMPTY;
    return CUDA_SUCCESS;
}

static CUresult child_of(CUgraphNode node, CUgraph *child) {
    CHECK(node == (CUgraphNode)GRAPHS_PARENT_NODE);
    *child = (CUgraph)GRAPHS_CHILD;
    return CUDA_SUCCESS;
}

/* Ends the object at once, or does not make it. */
static CUresult make_object(CUuserObject *object, void *data, CUhostFn end, unsigned references,
                            unsigned flags) {
    static uint64_t objects = 0x80000;

    graphs_called++;
    if (!object || references == 0 || flags > 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CHECK(data);
    if (end) {
        end(data);
    }
    *object = (CUuserObject)(objects += 16);
    return CUDA_SUCCESS;
}

static CUresult destroy(CUgraph graph) {
    graphs_called++;
    return graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

const struct remote_cuda_driver graphs_driver = {
    .cuGraphGetNodes = nodes_of,
    .cuGraphNodeGetType = type_of,
    .cuGraphChildGraphNodeGetGraph = child_of,
    .cuUserObjectCreate = make_object,
    .cuGraphDestroy = destroy,
    .cuFuncGetParamInfo = place,
    .cuKernelGetParamInfo = place_of_kernel,
    .cuGraphAddNode = add_plain,
    .cuGraphAddNode_v2 = add,
    .cuGraphAddKernelNode_v2 = add_kernel,
    .cuGraphExecNodeSetParams = change_exec,
    .cuGraphNodeGetParams = get,
    .cuGraphKernelNodeSetAttribute = set_attribute,
    .cuOccupancyMaxActiveClusters = clusters,
    .cuMemPoolSetAttribute = set_pool,
    .cuLaunchHostFunc = launch_function,
    .cuStreamGetCaptureInfo_v2 = info,
};
