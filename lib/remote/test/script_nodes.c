#include "remote/test/script.h"

#include "test/check.h"

#include <string.h>

/* Parameters that a node is given, and what they lead to. */
struct given {
    CUgraphNodeParams p;
    CUstreamBatchMemOpParams operations[3];
    CUmemAccessDesc access[1];
    uint64_t address, value;
    uint32_t count;
    void *each[3];
    unsigned char together[24];
    size_t bytes;
    void *extra[5];
};

static CUdeviceptr draw_address(struct script *s) {
    return s->memory[script_draw(s, 2)] + 64 * script_draw(s, 32);
}

static void draw_kernel(struct script *s, struct given *g) {
    CUDA_KERNEL_NODE_PARAMS *k = &g->p.kernel;

    if (script_draw(s, 2)) {
        k->func = s->function;
    } else {
        k->kern = s->kernel;
    }
    k->gridDimX = 1 + (unsigned)script_draw(s, 4);
    k->gridDimY = k->gridDimZ = k->blockDimY = k->blockDimZ = 1;
    k->blockDimX = 32;
    g->address = draw_address(s);
    g->count = (uint32_t)script_draw(s, 256);
    g->value = 1 + script_draw(s, 256);
    if (script_draw(s, 4) == 0) {
        memcpy(g->together, &g->address, 8);
        memcpy(g->together + 8, &g->count, 4);
        memcpy(g->together + 16, &g->value, 8);
        g->bytes = sizeof g->together;
        const void *const extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, g->together,
                                     CU_LAUNCH_PARAM_BUFFER_SIZE, &g->bytes, CU_LAUNCH_PARAM_END};
        memcpy(g->extra, extra, sizeof extra);
        k->extra = g->extra;
    } else {
        g->each[0] = &g->address;
        g->each[1] = &g->count;
        g->each[2] = &g->value;
        k->kernelParams = g->each;
    }
}

static void draw_copy(struct script *s, struct given *g) {
    CUDA_MEMCPY3D *c = &g->p.memcpy.copyParams;

    g->p.memcpy.copyCtx = s->context;
    c->srcMemoryType = c->dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c->srcDevice = draw_address(s);
    c->dstDevice = draw_address(s);
    if (script_draw(s, 3) == 0) {
        c->srcMemoryType = CU_MEMORYTYPE_HOST;
        c->srcHost = s->host + 64 * script_draw(s, 32);
    } else if (script_draw(s, 3) == 0) {
        c->dstMemoryType = CU_MEMORYTYPE_HOST;
        c->dstHost = s->host + 64 * script_draw(s, 32);
    } else if (script_draw(s, 3) == 0) {
        c->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    } else if (script_draw(s, 3) == 0) {
        c->srcMemoryType = CU_MEMORYTYPE_UNIFIED;
        c->srcDevice = (CUdeviceptr)(s->host + 64 * script_draw(s, 32));
    }
    c->srcPitch = c->dstPitch = 64;
    c->WidthInBytes = 1 + script_draw(s, 70);
    c->Height = 1 + script_draw(s, 4);
    c->Depth = 1;
}

static void draw_operations(struct script *s, struct given *g) {
    g->p.memOp.ctx = s->context;
    g->p.memOp.count = 1 + (unsigned)script_draw(s, 3);
    g->p.memOp.paramArray = g->operations;
    for (unsigned i = 0; i < 3; i++) {
        g->operations[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        g->operations[i].writeValue.address = draw_address(s);
        g->operations[i].writeValue.value = (cuuint32_t)script_draw(s, 1000);
    }
}

/* Parameters of this kind, some of which the driver refuses. */
static void draw_params(struct script *s, CUgraphNodeType type, struct given *g) {
    memset(g, 0, sizeof *g);
    g->p.type = type;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        draw_kernel(s, g);
        return;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        draw_copy(s, g);
        return;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        g->p.memset.dst = draw_address(s);
        g->p.memset.value = (unsigned)script_draw(s, 256);
        g->p.memset.elementSize = 1u << script_draw(s, 4);
        g->p.memset.width = 1 + script_draw(s, 64);
        g->p.memset.height = 1;
        g->p.memset.ctx = s->context;
        return;
    case CU_GRAPH_NODE_TYPE_HOST:
        g->p.host.fn = script_draw(s, 8) ? script_call : NULL;
        g->p.host.userData = s;
        return;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        g->p.eventWait.event = s->events[script_draw(s, 2)];
        return;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        draw_operations(s, g);
        return;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        g->p.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        g->p.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        g->p.alloc.bytesize = script_draw(s, 4) * 1000;
        return;
    default:
        return;
    }
}

static CUresult add_typed(struct script *s, unsigned graph, CUgraphNode *node,
                          const CUgraphNode *before, size_t count, CUgraphNodeParams *p) {
    CUgraph to = s->graphs[graph];

    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return p->kernel.kern ? cu.cuGraphAddKernelNode_v2(node, to, before, count, &p->kernel)
                              : cu.cuGraphAddKernelNode(
                                    node, to, before, count,
                                    (const CUDA_KERNEL_NODE_PARAMS_v1 *)(const void *)&p->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cu.cuGraphAddMemcpyNode(node, to, before, count, &p->memcpy.copyParams, s->context);
    case CU_GRAPH_NODE_TYPE_HOST:
        return cu.cuGraphAddHostNode(node, to, before, count, &p->host);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return cu.cuGraphAddBatchMemOpNode(node, to, before, count, &p->memOp);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return cu.cuGraphAddMemAllocNode(node, to, before, count, &p->alloc);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return cu.cuGraphAddEmptyNode(node, to, before, count);
    default:
        return cu.cuGraphAddNode_v2(node, to, before, NULL, count, p);
    }
}

void script_add(struct script *s, unsigned graph) {
    static const CUgraphNodeType types[] = {
        CU_GRAPH_NODE_TYPE_KERNEL,       CU_GRAPH_NODE_TYPE_MEMCPY,
        CU_GRAPH_NODE_TYPE_MEMSET,       CU_GRAPH_NODE_TYPE_HOST,
        CU_GRAPH_NODE_TYPE_EMPTY,        CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CU_GRAPH_NODE_TYPE_GRAPH,
    };
    CUgraphNodeType type = types[script_draw(s, sizeof types / sizeof *types)];
    CUgraphNode before[2], node = NULL;
    size_t count = 0;
    struct given g;
    unsigned other = (unsigned)script_draw(s, SCRIPT_GRAPHS);
    int result;

    while (s->of[graph].count && count < script_draw(s, 3)) {
        before[count++] = s->of[graph].nodes[script_draw(s, s->of[graph].count)];
    }
    if (type == CU_GRAPH_NODE_TYPE_HOST && !s->has_functions) {
        type = CU_GRAPH_NODE_TYPE_MEMSET;
    }
    draw_params(s, type, &g);
    if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
        g.p.graph.graph = other == graph ? NULL : s->graphs[other];
        result = (int)(g.p.graph.graph ? cu.cuGraphAddChildGraphNode(&node, s->graphs[graph],
                                                                     before, count, g.p.graph.graph)
                                       : CUDA_ERROR_INVALID_VALUE);
    } else if (script_draw(s, 2)) {
        result = cu.cuGraphAddNode(&node, s->graphs[graph], before, count, &g.p);
    } else {
        result = add_typed(s, graph, &node, before, count, &g.p);
    }
    fprintf(s->out, "add %d: %d\n", type, result);
    if (result == CUDA_SUCCESS) {
        s->of[graph].types[s->of[graph].count] = type;
        s->of[graph].nodes[s->of[graph].count++] = node;
    }
}

/* The parameters of a kernel, wherever they are. */
static void say_kernel(struct script *s, const CUDA_KERNEL_NODE_PARAMS *k) {
    fprintf(s->out, "%s%s %u %u", k->func == s->function ? "function" : "",
            k->kern == s->kernel ? "kernel" : "", k->gridDimX, k->blockDimX);
    if (k->kernelParams) {
        uint64_t address, value;
        uint32_t count;

        memcpy(&address, k->kernelParams[0], sizeof address);
        memcpy(&count, k->kernelParams[1], sizeof count);
        memcpy(&value, k->kernelParams[2], sizeof value);
        fprintf(s->out, " %s %u %llu", script_place(s, address), count, (unsigned long long)value);
    }
    fprintf(s->out, "%s\n", k->extra ? " extra" : "");
}

static void say_copy(struct script *s, const CUDA_MEMCPY3D *c) {
    fprintf(s->out, "%d %s %s, %d %s %s, %zu %zu %zu, %zu %zu\n", c->srcMemoryType,
            script_place(s, c->srcMemoryType == CU_MEMORYTYPE_HOST ? 0 : c->srcDevice),
            script_place(s, c->srcMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)c->srcHost : 0),
            c->dstMemoryType,
            script_place(s, c->dstMemoryType == CU_MEMORYTYPE_HOST ? 0 : c->dstDevice),
            script_place(s, c->dstMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)c->dstHost : 0),
            c->WidthInBytes, c->Height, c->Depth, c->srcPitch, c->dstPitch);
}

static void say_operations(struct script *s, const CUDA_BATCH_MEM_OP_NODE_PARAMS *o) {
    fprintf(s->out, "%u:", o->count);
    for (unsigned i = 0; i < o->count; i++) {
        fprintf(s->out, " %d %s %u", o->paramArray[i].operation,
                script_place(s, o->paramArray[i].writeValue.address),
                o->paramArray[i].writeValue.value);
    }
    fprintf(s->out, "\n");
}

void script_tell(struct script *s, unsigned graph, unsigned node) {
    CUgraphNode of = s->of[graph].nodes[node];
    CUgraphNodeType type = (CUgraphNodeType)-1;
    CUgraphNodeParams p;
    CUkernelNodeAttrValue value;

    memset(&p, 0, sizeof p);
    int result = cu.cuGraphNodeGetType(of, &type);
    fprintf(s->out, "type %d %d ", result, type);
    fprintf(s->out, "attribute %d ",
            cu.cuGraphKernelNodeGetAttribute(of, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    if (script_draw(s, 8) == 0) {
        type = (CUgraphNodeType)script_draw(s, 13); /* as if it were another */
    }
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        result = cu.cuGraphKernelNodeGetParams_v2(of, &p.kernel);
        fprintf(s->out, "kernel %d ", result);
        say_kernel(s, &p.kernel);
        return;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        result = cu.cuGraphMemcpyNodeGetParams(of, &p.memcpy.copyParams);
        fprintf(s->out, "copy %d ", result);
        say_copy(s, &p.memcpy.copyParams);
        return;
    case CU_GRAPH_NODE_TYPE_HOST:
        result = cu.cuGraphHostNodeGetParams(of, &p.host);
        fprintf(s->out, "host %d %d %d\n", result, p.host.fn == script_call, p.host.userData == s);
        return;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        result = cu.cuGraphMemAllocNodeGetParams(of, &p.alloc);
        fprintf(s->out, "alloc %d %zu %d\n", result, p.alloc.bytesize, p.alloc.dptr != 0);
        return;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        result = cu.cuGraphBatchMemOpNodeGetParams(of, &p.memOp);
        fprintf(s->out, "operations %d ", result);
        say_operations(s, &p.memOp);
        return;
    default:
        fprintf(s->out, "\n");
    }
}

static CUresult change_exec(struct script *s, CUgraphExec exec, CUgraphNode node,
                            CUgraphNodeParams *p) {
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return cu.cuGraphExecKernelNodeSetParams_v2(exec, node, &p->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cu.cuGraphExecMemcpyNodeSetParams(exec, node, &p->memcpy.copyParams, s->context);
    case CU_GRAPH_NODE_TYPE_HOST:
        return cu.cuGraphExecHostNodeSetParams(exec, node, &p->host);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return cu.cuGraphExecBatchMemOpNodeSetParams(exec, node, &p->memOp);
    default:
        return cu.cuGraphExecNodeSetParams(exec, node, p);
    }
}

static CUresult change(CUgraphNode node, CUgraphNodeParams *p) {
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return cu.cuGraphKernelNodeSetParams_v2(node, &p->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cu.cuGraphMemcpyNodeSetParams(node, &p->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_HOST:
        return cu.cuGraphHostNodeSetParams(node, &p->host);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return cu.cuGraphBatchMemOpNodeSetParams(node, &p->memOp);
    default:
        return cu.cuGraphNodeSetParams(node, p);
    }
}

/* Most of these know memory nodes and child graphs not at all. */
void script_change(struct script *s, unsigned graph, unsigned node, CUgraphExec exec) {
    CUgraphNodeType type = s->of[graph].types[node];
    struct given g;

    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_GRAPH) {
        return;
    }
    draw_params(s, type, &g);
    int result = (int)(exec ? change_exec(s, exec, s->of[graph].nodes[node], &g.p)
                            : change(s->of[graph].nodes[node], &g.p));
    fprintf(s->out, "change %d: %d\n", type, result);
}
