/* Graphs: the memory of graphs with allocation nodes, and the GPU time of all graphs. */
#include "cuda/device.h"
#include "cuda/memory/graph.h"
#include "cuda/memory/local.h"
#include "cuda/stream.h"
#include "cuda/time/launch.h"
#include "cuda/time/uses.h"

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                size_t afters, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    graph_memory_used();
    return DV_REAL(cuGraphAddMemAllocNode)(node, graph, after, afters, params);
}

/* Kernels of nodes, by the parameters that say which: pointers to these, by their types. */
static void note_nothing(const void *params) {
    (void)params;
}

/* What a kernel of a graph names is used by it. */
static void note_uses(const void *function, void *const *parameters, void *const *extra) {
    if (launch_watched()) {
        uses_kernel(TURNS_CAPTURED, function, parameters, extra);
    }
}

static void note_kernel_v1(const void *at) {
    const CUDA_KERNEL_NODE_PARAMS_v1 *params = *(const CUDA_KERNEL_NODE_PARAMS_v1 *const *)at;
    if (params != NULL) {
        local_in_graph(params->func);
        note_uses(params->func, params->kernelParams, params->extra);
    }
}

static void note_kernel(const void *at) {
    const CUDA_KERNEL_NODE_PARAMS *params = *(const CUDA_KERNEL_NODE_PARAMS *const *)at;
    if (params != NULL) {
        const void *function = params->func != NULL ? (const void *)params->func : params->kern;
        local_in_graph(function);
        note_uses(function, params->kernelParams, params->extra);
    }
}

static void note_node(const void *at) {
    const CUgraphNodeParams *params = *(CUgraphNodeParams *const *)at;
    if (params != NULL && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        graph_memory_used();
    } else if (params != NULL && params->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        const CUDA_KERNEL_NODE_PARAMS *kernel = &params->kernel;
        note_kernel(&kernel);
    }
}

#define NOTE(params)                                                                               \
    _Generic((params),                                                                             \
        const CUDA_KERNEL_NODE_PARAMS_v1 *: note_kernel_v1,                                        \
        const CUDA_KERNEL_NODE_PARAMS *: note_kernel,                                              \
        CUgraphNodeParams *: note_node,                                                            \
        default: note_nothing)(&(params))

/* A function about a node that is not part of an executable graph yet. */
#define NOTES(fn, params, parameters, ...)                                                         \
    CUresult fn parameters {                                                                       \
        if (DV_INNER()) {                                                                          \
            return DV_REAL(fn)(__VA_ARGS__);                                                       \
        }                                                                                          \
        NOTE(params);                                                                              \
        return DV_CALL(fn, __VA_ARGS__);                                                           \
    }

NOTES(cuGraphAddNode, params,
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t afters,
       CUgraphNodeParams *params),
      node, graph, after, afters, params)
NOTES(cuGraphAddNode_v2, params,
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges,
       size_t afters, CUgraphNodeParams *params),
      node, graph, after, edges, afters, params)
NOTES(cuGraphAddNode_v3, params,
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges,
       size_t afters, CUgraphNodeParams *params),
      node, graph, after, edges, afters, params)
NOTES(cuGraphAddKernelNode, params,
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t afters,
       const CUDA_KERNEL_NODE_PARAMS_v1 *params),
      node, graph, after, afters, params)
NOTES(cuGraphAddKernelNode_v2, params,
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t afters,
       const CUDA_KERNEL_NODE_PARAMS *params),
      node, graph, after, afters, params)
NOTES(cuGraphKernelNodeSetParams, params,
      (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params), node, params)
NOTES(cuGraphKernelNodeSetParams_v2, params,
      (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params), node, params)
NOTES(cuGraphNodeSetParams, params, (CUgraphNode node, CUgraphNodeParams *params), node, params)
NOTES(cuGraphNodeSetParams_v2, params, (CUgraphNode node, CUgraphNodeParams *params), node, params)

/* A function that makes the executable graph *a0 of a1. */
#define CUDA_HOOK_INSTANTIATES(fn, null, stream, in_order, what, parameters, arguments)            \
    CUresult fn parameters {                                                                       \
        struct graph_reservation reservation;                                                      \
        if (DV_INNER()) {                                                                          \
            return DV_REAL(fn) arguments;                                                          \
        }                                                                                          \
        CUresult result = graph_instantiate(&reservation, a1);                                     \
        return result == CUDA_SUCCESS                                                              \
                   ? graph_instantiated(&reservation, DV_CALL(fn, ARGUMENTS arguments), a0)        \
                   : result;                                                                       \
    }

/* Calls the driver, and reserves memory around the call if the graph may take some. A graph that is
 * launched into a stream that is being captured becomes a node of another graph and takes none. */
#define RESERVED(fn, suffix)                                                                       \
    static CUresult fn##suffix##_reserved(CUgraphExec exec, CUstream stream) {                     \
        struct graph_reservation reservation;                                                      \
        if (!graph_has_memory(exec) || stream_captured##suffix(stream)) {                          \
            return DV_CALL(fn##suffix, exec, stream);                                              \
        }                                                                                          \
        CUresult result = graph_launch(&reservation, exec);                                        \
        return result == CUDA_SUCCESS                                                              \
                   ? graph_launched(&reservation, DV_CALL(fn##suffix, exec, stream), exec)         \
                   : result;                                                                       \
    }                                                                                              \
    static CUresult fn##suffix##_grown(CUgraphExec exec, CUstream stream) {                        \
        struct growth growth;                                                                      \
        CUresult result = local_graph(&growth, stream);                                            \
        if (result == CUDA_SUCCESS) {                                                              \
            result = fn##suffix##_reserved(exec, stream);                                          \
            growth_end(&growth, result == CUDA_SUCCESS);                                           \
        }                                                                                          \
        return result;                                                                             \
    }
RESERVED(cuGraphLaunch, )
RESERVED(cuGraphLaunch, _ptsz)
RESERVED(cuGraphUpload, )
RESERVED(cuGraphUpload, _ptsz)

static uint64_t key_of(CUgraphExec exec) {
    return cost_key(cost_graph(exec));
}

#define LAUNCHES(fn, stream_of)                                                                    \
    CUresult fn(CUgraphExec exec, CUstream stream) {                                               \
        struct launch launch;                                                                      \
        if (DV_INNER()) {                                                                          \
            return DV_REAL(fn)(exec, stream);                                                      \
        }                                                                                          \
        if (!launch_watched()) {                                                                   \
            return fn##_grown(exec, stream);                                                       \
        }                                                                                          \
        CUresult result =                                                                          \
            launch_begin(&launch, stream_of(stream), cost_graph(exec), COST_PRIOR_NS);             \
        if (result == CUDA_SUCCESS) {                                                              \
            if (uses_matter(&launch)) {                                                            \
                uses_graph(launch.turns);                                                          \
            }                                                                                      \
            result = fn##_grown(exec, stream);                                                     \
        }                                                                                          \
        launch_end(&launch, result);                                                               \
        return result;                                                                             \
    }
LAUNCHES(cuGraphLaunch, launch_legacy)
LAUNCHES(cuGraphLaunch_ptsz, launch_own)

/* An upload is not work, but later work of the stream waits for it. */
#define UPLOADS(fn, stream_of)                                                                     \
    CUresult fn(CUgraphExec exec, CUstream stream) {                                               \
        if (DV_INNER()) {                                                                          \
            return DV_REAL(fn)(exec, stream);                                                      \
        }                                                                                          \
        if (launch_watched()) {                                                                    \
            turns_pause();                                                                         \
            launch_follows(stream_of(stream));                                                     \
        }                                                                                          \
        return fn##_grown(exec, stream);                                                           \
    }
UPLOADS(cuGraphUpload, launch_legacy)
UPLOADS(cuGraphUpload_ptsz, launch_own)

static CUresult destroy(CUgraphExec exec) {
    struct graph_end end;
    if (!graph_has_memory(exec)) {
        return DV_CALL(cuGraphExecDestroy, exec);
    }
    graph_ending(&end, exec);
    CUresult result = DV_CALL(cuGraphExecDestroy, exec);
    graph_ended(&end, exec, result);
    return result;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    if (DV_INNER()) {
        return DV_REAL(cuGraphExecDestroy)(exec);
    }
    cost_relearn(key_of(exec));
    return destroy(exec);
}

/* A function that changes what the executable graph a0 does, and so what it costs. */
#define CUDA_HOOK_CHANGES(fn, null, stream, in_order, what, parameters, arguments)                 \
    CUresult fn parameters {                                                                       \
        bool inner = DV_INNER();                                                                   \
        if (!inner) {                                                                              \
            NOTE(a2);                                                                              \
        }                                                                                          \
        CUresult result = DV_CALL(fn, ARGUMENTS arguments);                                        \
        if (result == CUDA_SUCCESS && !inner) {                                                    \
            cost_relearn(key_of(a0));                                                              \
        }                                                                                          \
        return result;                                                                             \
    }
#include "abi/generated/cuda_hooks.inc"

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    CUresult result = DV_CALL(cuDeviceGraphMemTrim, device);
    int number = result == CUDA_SUCCESS && !DV_INNER() ? device_number(device) : -1;
    if (number >= 0) {
        graph_trimmed((unsigned)number);
    }
    return result;
}
