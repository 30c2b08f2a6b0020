/* Graphs with allocation nodes: making the nodes, instantiating, launching, trimming. */
#include "cuda/device.h"
#include "cuda/graph.h"
#include "cuda/stream.h"

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                size_t afters, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    graph_memory_used();
    return DV_REAL(cuGraphAddMemAllocNode)(node, graph, after, afters, params);
}

static void note_type(const CUgraphNodeParams *params) {
    if (params != NULL && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        graph_memory_used();
    }
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t afters,
                        CUgraphNodeParams *params) {
    note_type(params);
    return DV_REAL(cuGraphAddNode)(node, graph, after, afters, params);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                           const CUgraphEdgeData *edges, size_t afters, CUgraphNodeParams *params) {
    note_type(params);
    return DV_REAL(cuGraphAddNode_v2)(node, graph, after, edges, afters, params);
}

CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                           const CUgraphEdgeData *edges, size_t afters, CUgraphNodeParams *params) {
    note_type(params);
    return DV_REAL(cuGraphAddNode_v3)(node, graph, after, edges, afters, params);
}

/* A function that makes `exec` of `graph`. */
#define INSTANTIATES(fn, parameters, ...)                                                          \
    CUresult fn parameters {                                                                       \
        struct graph_claim claim;                                                                  \
        if (dv_depth > 0) {                                                                        \
            return DV_REAL(fn)(__VA_ARGS__);                                                       \
        }                                                                                          \
        CUresult result = graph_instantiate(&claim, graph);                                        \
        return result == CUDA_SUCCESS ? graph_instantiated(&claim, DV_CALL(fn, __VA_ARGS__), exec) \
                                      : result;                                                    \
    }

INSTANTIATES(cuGraphInstantiate,
             (CUgraphExec * exec, CUgraph graph, CUgraphNode *fault, char *log, size_t room), exec,
             graph, fault, log, room)
INSTANTIATES(cuGraphInstantiate_v2,
             (CUgraphExec * exec, CUgraph graph, CUgraphNode *fault, char *log, size_t room), exec,
             graph, fault, log, room)
INSTANTIATES(cuGraphInstantiateWithFlags,
             (CUgraphExec * exec, CUgraph graph, unsigned long long flags), exec, graph, flags)
INSTANTIATES(cuGraphInstantiateWithParams,
             (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), exec,
             graph, params)
INSTANTIATES(cuGraphInstantiateWithParams_ptsz,
             (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), exec,
             graph, params)

/* A function that may make the driver take memory for a graph. Into a stream that is being captured
 * the graph goes as a node of another, and takes nothing. */
#define LAUNCHES(fn, suffix)                                                                       \
    CUresult fn##suffix(CUgraphExec exec, CUstream stream) {                                       \
        struct graph_claim claim;                                                                  \
        if (dv_depth > 0 || !graph_has_memory(exec) || stream_captured##suffix(stream)) {          \
            return DV_REAL(fn##suffix)(exec, stream);                                              \
        }                                                                                          \
        CUresult result = graph_launch(&claim, exec);                                              \
        return result == CUDA_SUCCESS                                                              \
                   ? graph_launched(&claim, DV_CALL(fn##suffix, exec, stream), exec)               \
                   : result;                                                                       \
    }

LAUNCHES(cuGraphLaunch, )
LAUNCHES(cuGraphLaunch, _ptsz)
LAUNCHES(cuGraphUpload, )
LAUNCHES(cuGraphUpload, _ptsz)

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    struct graph_end end;
    if (dv_depth > 0 || !graph_has_memory(exec)) {
        return DV_REAL(cuGraphExecDestroy)(exec);
    }
    graph_ending(&end, exec);
    CUresult result = DV_CALL(cuGraphExecDestroy, exec);
    graph_ended(&end, exec, result);
    return result;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    CUresult result = DV_CALL(cuDeviceGraphMemTrim, device);
    int number = result == CUDA_SUCCESS && dv_depth == 0 ? device_number(device) : -1;
    if (number >= 0) {
        graph_trimmed((unsigned)number);
    }
    return result;
}
