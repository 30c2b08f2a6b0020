/* Launches of executable graphs: all nodes at once where nothing of a graph depends on the CPU,
 * with independent ones beside each other; otherwise node after node through the stream. */
#include "simgpu/cuda/graph.h"
#include "simgpu/cuda/queue.h"

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

    for (size_t i = 0; i < exec->count; i++) {
        if (exec->steps[i].op->kind == OP_ALLOC &&
            holds_memory(exec->steps[i].op->memory.address)) {
            SG_REQUIRE(exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH,
                       CUDA_ERROR_INVALID_VALUE);
            free_memory(exec->steps[i].op->memory.address);
        }
    }
    for (; taken < exec->count && result == CUDA_SUCCESS; taken++) {
        if (exec->steps[taken].op->kind == OP_ALLOC) {
            sg_memory_lock();
            result = graph_memory_map(exec->steps[taken].op->memory.address);
            sg_memory_unlock();
        }
    }
    if (result != CUDA_SUCCESS) {
        for (size_t i = 0; i + 1 < taken; i++) {
            if (exec->steps[i].op->kind == OP_ALLOC) {
                free_memory(exec->steps[i].op->memory.address);
            }
        }
    }
    return result;
}

/* ---- all at once ---- */

/* An operation that waits for the CPU or for something that is not issued yet goes to the stream
 * alone. */
static bool at_once(const struct step *step) {
    switch (step->op->kind) {
    case OP_EMPTY:
    case OP_KERNEL:
    case OP_COPY:
    case OP_FILL:
    case OP_RECORD:
    case OP_ALLOC:
    case OP_FREE:
        return true;
    default:
        return !step->enabled;
    }
}

/* Memory that the graph was made with may be gone. Kernels need what they need in any launch. */
static CUresult check(CUgraphExec exec, CUcontext ctx) {
    for (size_t i = 0; i < exec->count; i++) {
        if (exec->steps[i].enabled) {
            SG_TRY(op_check(exec->steps[i].op, false));
        }
        if (exec->steps[i].enabled && exec->steps[i].op->kind == OP_KERNEL) {
            SG_TRY(launch_prepare(exec->steps[i].op->launch.function, ctx));
        }
    }
    return CUDA_SUCCESS;
}

static bool all_at_once(CUgraphExec exec) {
    for (size_t i = 0; i < exec->count; i++) {
        if (!at_once(&exec->steps[i])) {
            return false;
        }
    }
    return true;
}

/* The work lock. Schedules all steps, each after those it depends on and none before the stream's
 * tail; returns where the last one ends. A step that takes nothing ends where the last of those
 * before it does. */
static uint64_t place(CUgraphExec exec, CUstream stream) {
    struct sg_instance *in = &sg_driver.instance;
    struct device *device = stream->ctx->device;
    uint64_t tail = __atomic_load_n(&stream->tail, __ATOMIC_RELAXED), last = tail;

    sg_schedule_lock(in, device->gpu);
    sg_advance_locked(in, device->gpu, sg_time(in));
    for (size_t i = 0; i < exec->count; i++) {
        struct step *step = &exec->steps[i];
        uint64_t after = tail;
        for (size_t k = 0; k < step->before_count; k++) {
            if (exec->steps[step->before[k]].work.after > after) {
                after = exec->steps[step->before[k]].work.after;
            }
        }
        step->work.after = after;
        if (step->work.ns) {
            step->work.after = sg_give_locked(in, device->gpu, &step->work);
            op_given(&step->work);
        }
        if (step->work.after > last) {
            last = step->work.after;
        }
    }
    sg_schedule_unlock(in, device->gpu);
    return last;
}

/* Issues the graph as one entry of the stream's queue; false when something waits there. */
static bool issue(CUgraphExec exec, CUstream stream, uint64_t *before) {
    static const struct sg_work nothing;

    for (size_t i = 0; i < exec->count; i++) {
        exec->steps[i].work = nothing;
    }
    sg_work_lock();
    bool waits = queue_waits(stream);
    if (!waits) {
        for (size_t i = 0; i < exec->count; i++) {
            if (exec->steps[i].enabled) {
                exec->steps[i].work = op_perform(exec->steps[i].op, stream->ctx->device);
            }
        }
        queue_follow(stream);
        *before = queue_extend(stream, place(exec, stream));
        for (size_t i = 0; i < exec->count; i++) {
            if (exec->steps[i].enabled && exec->steps[i].op->kind == OP_RECORD) {
                event_issue(exec->steps[i].op->event, stream, 0, exec->steps[i].work.after);
            }
        }
        queue_announce(stream);
    }
    sg_work_unlock();
    return !waits;
}

/* ---- one by one ---- */

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

static CUresult give_all(CUgraphExec exec, CUstream stream) {
    CUresult result = CUDA_SUCCESS;

    for (size_t i = 0; i < exec->count && result == CUDA_SUCCESS; i++) {
        if (exec->steps[i].enabled && exec->steps[i].op->kind != OP_EMPTY &&
            exec->steps[i].op->kind != OP_ALLOC) {
            result = give(stream, &exec->steps[i]);
        }
    }
    return result;
}

static CUresult launch(CUgraphExec exec, CUstream handle, bool ptds) {
    uint64_t before = 0;

    SG_STREAM(stream, handle, ptds);
    SG_REQUIRE(handle_given(exec, HANDLE_EXEC), CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(!stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (sg_driver.machine->launch_ns) {
        sg_burn(sg_driver.machine->launch_ns);
    }
    pthread_mutex_lock(&exec->lock);
    CUresult result = capture_implicit(stream);
    if (result == CUDA_SUCCESS) {
        result = take_memory(exec);
    }
    if (result == CUDA_SUCCESS) {
        result = check(exec, stream->ctx);
    }
    if (result == CUDA_SUCCESS && !(all_at_once(exec) && issue(exec, stream, &before))) {
        result = give_all(exec, stream);
    }
    pthread_mutex_unlock(&exec->lock);
    queue_wait_room(stream, before);
    return result;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    return launch(exec, stream, false);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    return launch(exec, stream, true);
}

/* On real hardware an upload does early what the first launch would do. Here it takes no memory. */
static CUresult upload(CUgraphExec exec, CUstream handle, bool ptds) {
    SG_STREAM(stream, handle, ptds);
    return handle_given(exec, HANDLE_EXEC) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
    return upload(exec, stream, false);
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
    return upload(exec, stream, true);
}
