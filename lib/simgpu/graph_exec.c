/* Executable graphs: a graph's operations in an order that respects its dependencies. */
#include "simgpu/graph.h"
#include "simgpu/queue.h"

#include <stdlib.h>
#include <string.h>

static unsigned walk; /* numbers the walks over nodes; the graph lock */

static bool ready(const struct CUgraphNode_st *node, unsigned mark) {
    for (size_t i = 0; i < node->before_count; i++)
        if (node->before[i]->mark != mark)
            return false;
    return true;
}

/* The nodes of a graph in order, into a buffer that has room for all. False where there is a cycle.
 */
static bool sort(CUgraph graph, CUgraphNode *out, size_t count) {
    unsigned mark = ++walk;
    size_t done = 0, before;

    do {
        before = done;
        for (struct link *at = graph->nodes.next; at != &graph->nodes; at = at->next) {
            CUgraphNode node = CONTAINER(at, struct CUgraphNode_st, of_graph);
            if (node->mark == mark || !ready(node, mark))
                continue;
            node->mark = mark;
            out[done++] = node;
        }
    } while (done > before);
    return done == count;
}

static size_t node_count(CUgraph graph) {
    size_t n = 0;

    for (struct link *at = graph->nodes.next; at != &graph->nodes; at = at->next)
        n++;
    return n;
}

static CUresult add_step(CUgraphExec exec, CUgraphNode node) {
    struct step *steps = realloc(exec->steps, (exec->count + 1) * sizeof *steps);

    if (!steps)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->steps = steps;
    struct stream_op *op = graph_op_keep(node->op);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    steps[exec->count++] = (struct step){node, op, true};
    return CUDA_SUCCESS;
}

/* Child graphs become part of the one that holds them. */
static CUresult add_graph(CUgraphExec exec, CUgraph graph) {
    size_t count = node_count(graph);
    CUgraphNode *order = malloc((count + 1) * sizeof(CUgraphNode));
    CUresult result = CUDA_SUCCESS;

    if (!order)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!sort(graph, order, count))
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = order[i]->op->kind == OP_CHILD ? add_graph(exec, order[i]->op->child)
                                                : add_step(exec, order[i]);
    free(order);
    return result;
}

static void end_exec(CUgraphExec exec) {
    pthread_mutex_lock(&exec->lock);
    for (size_t i = 0; i < exec->count; i++)
        graph_op_drop(exec->steps[i].op);
    free(exec->steps);
    exec->steps = NULL;
    exec->count = 0;
    pthread_mutex_unlock(&exec->lock);
    handle_end(exec, HANDLE_EXEC);
}

static CUresult instantiate(CUgraphExec *out, CUgraph graph, cuuint64_t flags) {
    SG_READY();
    SG_REQUIRE(out && handle_is(graph, HANDLE_GRAPH) && !(flags & ~(cuuint64_t)15),
               CUDA_ERROR_INVALID_VALUE);
    CUgraphExec exec = handle_new(HANDLE_EXEC, sizeof *exec);
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->flags = flags;
    exec->id = (unsigned)sg_new_id();
    pthread_mutex_init(&exec->lock, NULL);
    pthread_mutex_lock(&graph_lock);
    CUresult result = add_graph(exec, graph);
    if (result != CUDA_SUCCESS)
        end_exec(exec);
    pthread_mutex_unlock(&graph_lock);
    if (result == CUDA_SUCCESS)
        *out = exec;
    return result;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    return instantiate(exec, graph, flags);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *failed, char *log,
                               size_t room) {
    if (failed)
        *failed = NULL;
    if (log && room)
        *log = '\0';
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
    SG_REQUIRE(handle_is(exec, HANDLE_EXEC), CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&graph_lock);
    end_exec(exec);
    pthread_mutex_unlock(&graph_lock);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags) {
    SG_READY();
    SG_REQUIRE(handle_is(exec, HANDLE_EXEC) && flags, CUDA_ERROR_INVALID_VALUE);
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetId(CUgraphExec exec, unsigned int *id) {
    SG_READY();
    SG_REQUIRE(handle_is(exec, HANDLE_EXEC) && id, CUDA_ERROR_INVALID_VALUE);
    *id = exec->id;
    return CUDA_SUCCESS;
}

/* ---- launch ---- */

static bool holds_memory(CUdeviceptr address) {
    sg_memory_lock();
    struct page *page = page_of(address);
    bool holds = page && page->block;
    sg_memory_unlock();
    return holds;
}

static void free_memory(CUdeviceptr address) {
    sg_memory_lock();
    graph_memory_unmap(range_of(address));
    sg_memory_unlock();
}

/* Takes the memory of all memory nodes before anything runs, so that a launch without memory fails
 * as a whole. Memory that an earlier launch left is an error, unless the graph frees it by itself.
 */
static CUresult take_memory(CUgraphExec exec) {
    CUresult result = CUDA_SUCCESS;
    size_t taken = 0;

    for (size_t i = 0; i < exec->count; i++)
        if (exec->steps[i].op->kind == OP_ALLOC &&
            holds_memory(exec->steps[i].op->memory.address)) {
            SG_REQUIRE(exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH,
                       CUDA_ERROR_INVALID_VALUE);
            free_memory(exec->steps[i].op->memory.address);
        }
    for (; taken < exec->count && result == CUDA_SUCCESS; taken++)
        if (exec->steps[taken].op->kind == OP_ALLOC) {
            sg_memory_lock();
            result = graph_memory_map(exec->steps[taken].op->memory.address);
            sg_memory_unlock();
        }
    if (result != CUDA_SUCCESS)
        for (size_t i = 0; i + 1 < taken; i++)
            if (exec->steps[i].op->kind == OP_ALLOC)
                free_memory(exec->steps[i].op->memory.address);
    return result;
}

/* The operation as the stream gets it; a wait is for what the event stands for now. */
static CUresult give(CUstream stream, const struct step *step) {
    struct stream_op op = *step->op;

    if (op.kind == OP_WAIT) {
        SG_REQUIRE(handle_is(op.event, HANDLE_EVENT), CUDA_ERROR_INVALID_HANDLE);
        sg_work_lock();
        op.wait = op.event->shared ? event_shared_mark(op.event) : op.event->mark;
        sg_work_unlock();
    }
    return sg_enqueue(stream, &op);
}

static CUresult launch(CUgraphExec exec, CUstream handle, bool ptds) {
    SG_STREAM(stream, handle, ptds);
    SG_REQUIRE(handle_is(exec, HANDLE_EXEC), CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(!stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (sg_driver.machine->launch_ns)
        sg_burn(sg_driver.machine->launch_ns);
    pthread_mutex_lock(&exec->lock);
    CUresult result = take_memory(exec);
    for (size_t i = 0; i < exec->count && result == CUDA_SUCCESS; i++)
        if (exec->steps[i].enabled && exec->steps[i].op->kind != OP_EMPTY &&
            exec->steps[i].op->kind != OP_ALLOC)
            result = give(stream, &exec->steps[i]);
    pthread_mutex_unlock(&exec->lock);
    return result;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    return launch(exec, stream, false);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    return launch(exec, stream, true);
}

/* Uploading does early what the first launch does on real hardware; it takes no memory here. */
static CUresult upload(CUgraphExec exec, CUstream handle, bool ptds) {
    SG_STREAM(stream, handle, ptds);
    return handle_is(exec, HANDLE_EXEC) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
    return upload(exec, stream, false);
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
    return upload(exec, stream, true);
}

/* ---- change ---- */

static struct step *step_of(CUgraphExec exec, CUgraphNode node) {
    for (size_t i = 0; i < exec->count; i++)
        if (exec->steps[i].node == node)
            return &exec->steps[i];
    return NULL;
}

/* Only kernels, copies and fills can be switched off. */
CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled) {
    SG_READY();
    SG_REQUIRE(handle_is(exec, HANDLE_EXEC), CUDA_ERROR_INVALID_VALUE);
    struct step *step = step_of(exec, node);
    SG_REQUIRE(step && step->op->kind >= OP_KERNEL && step->op->kind <= OP_FILL,
               CUDA_ERROR_INVALID_VALUE);
    step->enabled = enabled != 0;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled) {
    SG_READY();
    SG_REQUIRE(handle_is(exec, HANDLE_EXEC) && enabled, CUDA_ERROR_INVALID_VALUE);
    struct step *step = step_of(exec, node);
    SG_REQUIRE(step, CUDA_ERROR_INVALID_VALUE);
    *enabled = step->enabled;
    return CUDA_SUCCESS;
}

/* Takes over the parameters of a graph of the same shape: as many steps of the same kinds. */
static CUgraphExecUpdateResult update(CUgraphExec exec, CUgraphExec from, CUgraphNode *wrong) {
    *wrong = NULL;
    if (from->count != exec->count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < exec->count; i++)
        if (exec->steps[i].op->kind != from->steps[i].op->kind) {
            *wrong = from->steps[i].node;
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        } else if (exec->steps[i].op->kind == OP_ALLOC) {
            *wrong = from->steps[i].node;
            return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
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

    SG_REQUIRE(handle_is(exec, HANDLE_EXEC) && info, CUDA_ERROR_INVALID_VALUE);
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

    if (wrong)
        *wrong = info.errorNode;
    if (result)
        *result = info.result;
    return answer;
}
