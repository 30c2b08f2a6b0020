/* Executable graphs: a graph's operations in an order that respects its dependencies. */
#include "simgpu/cuda/graph.h"

#include <stdlib.h>
#include <string.h>

static unsigned walk; /* numbers the walks over nodes; the graph lock */

static bool ready(const struct CUgraphNode_st *node, unsigned mark) {
    for (size_t i = 0; i < node->before_count; i++) {
        if (node->before[i]->mark != mark) {
            return false;
        }
    }
    return true;
}

/* The nodes of a graph in order, into a buffer that has room for all. False where there is a
   cycle. */
static bool sort(CUgraph graph, CUgraphNode *out, size_t count) {
    unsigned mark = ++walk;
    size_t done = 0, before;

    do {
        before = done;
        for (struct link *at = graph->nodes.next; at != &graph->nodes; at = at->next) {
            CUgraphNode node = CONTAINER(at, struct CUgraphNode_st, of_graph);
            if (node->mark == mark || !ready(node, mark)) {
                continue;
            }
            node->mark = mark;
            out[done++] = node;
        }
    } while (done > before);
    return done == count;
}

static size_t node_count(CUgraph graph) {
    size_t n = 0;

    for (struct link *at = graph->nodes.next; at != &graph->nodes; at = at->next) {
        n++;
    }
    return n;
}

/* Adds a step after those in `before`, which it takes over from the caller. */
static CUresult add_step(CUgraphExec exec, CUgraphNode node, const struct stream_op *op,
                         uint32_t *before, size_t before_count) {
    struct step *steps = before ? realloc(exec->steps, (exec->count + 1) * sizeof *steps) : NULL;

    if (steps) {
        exec->steps = steps;
    }
    struct stream_op *kept = steps ? graph_op_keep(op) : NULL;
    if (!kept) {
        free(before);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    steps[exec->count++] = (struct step){
        .node = node, .op = kept, .enabled = true, .before = before, .before_count = before_count};
    return CUDA_SUCCESS;
}

/* The steps that a node comes after: those of its graph's begin when it has no others. */
static uint32_t *steps_before(const struct CUgraphNode_st *node, const uint32_t *begin,
                              size_t *count) {
    uint32_t *before = malloc((node->before_count + 1) * sizeof *before);

    *count = node->before_count;
    for (size_t i = 0; before && i < node->before_count; i++) {
        before[i] = node->before[i]->step;
    }
    if (before && node->before_count == 0 && begin) {
        before[0] = *begin;
        *count = 1;
    }
    return before;
}

static CUresult add_graph(CUgraphExec exec, CUgraph graph, const uint32_t *begin);

/* Child graphs become part of the one that holds them. */
static CUresult add_node(CUgraphExec exec, CUgraphNode node, const uint32_t *begin) {
    static const struct stream_op nothing = {.kind = OP_EMPTY};
    bool child = node->op->kind == OP_CHILD;
    size_t count;
    uint32_t *before = steps_before(node, begin, &count);

    SG_TRY(add_step(exec, child ? NULL : node, child ? &nothing : node->op, before, count));
    uint32_t first = (uint32_t)exec->count - 1;
    if (child) {
        SG_TRY(add_graph(exec, node->op->child, &first));
        count = exec->count - first;
        if ((before = malloc(count * sizeof *before)) != NULL) {
            for (uint32_t i = 0; i < count; i++) {
                before[i] = first + i;
            }
        }
        SG_TRY(add_step(exec, node, &nothing, before, count));
    }
    node->step = (uint32_t)exec->count - 1;
    return CUDA_SUCCESS;
}

static CUresult add_graph(CUgraphExec exec, CUgraph graph, const uint32_t *begin) {
    size_t count = node_count(graph);
    CUgraphNode *order = malloc((count + 1) * sizeof(CUgraphNode));
    CUresult result = CUDA_SUCCESS;

    if (!order) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!sort(graph, order, count)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = add_node(exec, order[i], begin);
    }
    free(order);
    return result;
}

static void end_exec(CUgraphExec exec) {
    pthread_mutex_lock(&exec->lock);
    for (size_t i = 0; i < exec->count; i++) {
        graph_op_drop(exec->steps[i].op);
        free(exec->steps[i].before);
    }
    free(exec->steps);
    exec->steps = NULL;
    exec->count = 0;
    pthread_mutex_unlock(&exec->lock);
    handle_end(exec, HANDLE_EXEC);
}

static CUresult instantiate(CUgraphExec *out, CUgraph graph, cuuint64_t flags) {
    SG_READY();
    SG_REQUIRE(out && handle_given(graph, HANDLE_GRAPH) && !(flags & ~(cuuint64_t)15),
               CUDA_ERROR_INVALID_VALUE);
    CUgraphExec exec = handle_new(HANDLE_EXEC, sizeof *exec);
    if (!exec) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    exec->flags = flags;
    exec->id = (unsigned)sg_new_id();
    pthread_mutex_init(&exec->lock, NULL);
    pthread_mutex_lock(&graph_lock);
    CUresult result = add_graph(exec, graph, NULL);
    if (result != CUDA_SUCCESS) {
        end_exec(exec);
    }
    pthread_mutex_unlock(&graph_lock);
    if (result == CUDA_SUCCESS) {
        *out = exec;
    }
    return result;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    return instantiate(exec, graph, flags);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *failed, char *log,
                               size_t room) {
    if (failed) {
        *failed = NULL;
    }
    if (log && room) {
        *log = '\0';
    }
    return instantiate(exec, graph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *failed, char *log,
                            size_t room) {
    return cuGraphInstantiate_v2(exec, graph, failed, log, room);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *p) {
    SG_REQUIRE(p, CUDA_ERROR_INVALID_VALUE);
    CUresult result = instantiate(exec, graph, p->flags);
    p->hErrNode_out = NULL;
    p->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                                           : CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    return result;
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *p) {
    return cuGraphInstantiateWithParams(exec, graph, p);
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    SG_READY();
    SG_REQUIRE(handle_given(exec, HANDLE_EXEC), CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&graph_lock);
    end_exec(exec);
    pthread_mutex_unlock(&graph_lock);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags) {
    SG_READY();
    SG_REQUIRE(handle_given(exec, HANDLE_EXEC) && flags, CUDA_ERROR_INVALID_VALUE);
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetId(CUgraphExec exec, unsigned int *id) {
    SG_READY();
    SG_REQUIRE(handle_given(exec, HANDLE_EXEC) && id, CUDA_ERROR_INVALID_VALUE);
    *id = exec->id;
    return CUDA_SUCCESS;
}

/* ---- change ---- */

static struct step *step_of(CUgraphExec exec, CUgraphNode node) {
    for (size_t i = 0; i < exec->count; i++) {
        if (node && exec->steps[i].node == node) {
            return &exec->steps[i];
        }
    }
    return NULL;
}

/* Only kernels, copies and fills can be switched off. */
CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled) {
    SG_REQUIRE(exec && node, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    SG_REQUIRE(handle_given(exec, HANDLE_EXEC), CUDA_ERROR_INVALID_VALUE);
    struct step *step = step_of(exec, node);
    SG_REQUIRE(step && step->op->kind >= OP_KERNEL && step->op->kind <= OP_FILL,
               CUDA_ERROR_INVALID_VALUE);
    step->enabled = enabled != 0;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled) {
    SG_REQUIRE(exec && node && enabled, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    SG_REQUIRE(handle_given(exec, HANDLE_EXEC), CUDA_ERROR_INVALID_VALUE);
    struct step *step = step_of(exec, node);
    SG_REQUIRE(step, CUDA_ERROR_INVALID_VALUE);
    *enabled = step->enabled;
    return CUDA_SUCCESS;
}

static bool same_place(const struct step *a, const struct step *b) {
    return a->before_count == b->before_count &&
           memcmp(a->before, b->before, a->before_count * sizeof *a->before) == 0;
}

/* Takes over the parameters of a graph of the same shape: the same steps, of the same kinds. */
static CUgraphExecUpdateResult update(CUgraphExec exec, CUgraphExec from, CUgraphNode *wrong) {
    *wrong = NULL;
    if (from->count != exec->count) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    for (size_t i = 0; i < exec->count; i++) {
        if (!same_place(&exec->steps[i], &from->steps[i])) {
            *wrong = from->steps[i].node;
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        } else if (exec->steps[i].op->kind != from->steps[i].op->kind) {
            *wrong = from->steps[i].node;
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        } else if (exec->steps[i].op->kind == OP_ALLOC) {
            *wrong = from->steps[i].node;
            return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
        }
    }
    for (size_t i = 0; i < exec->count; i++) {
        struct stream_op *op = exec->steps[i].op;
        exec->steps[i].op = from->steps[i].op;
        from->steps[i].op = op;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
    CUgraphExec from;
    CUgraphNode wrong;

    SG_READY();
    SG_REQUIRE(handle_given(exec, HANDLE_EXEC) && info, CUDA_ERROR_INVALID_VALUE);
    memset(info, 0, sizeof *info);
    SG_TRY(instantiate(&from, graph, exec->flags));
    pthread_mutex_lock(&graph_lock);
    pthread_mutex_lock(&exec->lock);
    info->result = update(exec, from, &wrong);
    pthread_mutex_unlock(&exec->lock);
    info->errorNode = wrong;
    end_exec(from);
    pthread_mutex_unlock(&graph_lock);
    return info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
                                                        : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *wrong,
                           CUgraphExecUpdateResult *result) {
    CUgraphExecUpdateResultInfo info = {0};
    CUresult answer = cuGraphExecUpdate_v2(exec, graph, &info);

    SG_READY();
    if (wrong) {
        *wrong = info.errorNode;
    }
    if (result) {
        *result = info.result;
    }
    return answer;
}
