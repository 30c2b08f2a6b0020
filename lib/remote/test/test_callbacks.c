/* Functions of the program that streams call: in their order, on a thread of the client's, and never after the end. */
#define _GNU_SOURCE
#include "remote/test/whole.h"

#include "test/check.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define STREAMS 4u
#define ROUNDS 200u
#define CAPTURE_RELAXED 2

static CUcontext context;

static void begin(void) {
    OK(cu.cuInit(0));
    OK(cu.cuCtxCreate_v2(&context, 0, 0));
}

/* What one stream has seen. */
struct line {
    CUstream stream;
    volatile unsigned *copied; /* the number of its last step, which the stream has copied there */
    unsigned next;
    bool right;
    pthread_t thread;
};
struct step {
    struct line *line;
    unsigned number;
};

static void take_step(void *data) {
    struct step *step = data;

    step->line->right = step->line->right && step->line->next == step->number &&
                        step->line->copied[0] == step->number;
    step->line->thread = pthread_self();
    step->line->next++;
}

static void take_step_of_stream(CUstream stream, CUresult status, void *data) {
    struct step *step = data;

    step->line->right = step->line->right && stream == step->line->stream && status == CUDA_SUCCESS;
    take_step(data);
}

static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry divvy_busy_ns(.param .u64 a) { ret; }\n";

/* Work before a function: a kernel, and a copy of the number that the function looks for. */
static void work_before(CUfunction busy, CUdeviceptr memory, unsigned number, struct line *line) {
    uint64_t ns = 2000;
    void *parameters[] = {&ns};

    OK(cu.cuLaunchKernel(busy, 1, 1, 1, 32, 1, 1, 0, line->stream, parameters, NULL));
    OK(cu.cuMemsetD32Async(memory, number, 16, line->stream));
    OK(cu.cuMemcpyDtoHAsync_v2((void *)(uintptr_t)line->copied, memory, 64, line->stream));
}

/* Functions of several streams, among other work: each stream's own come in their order, and its end waits for all. */
static void check_order(void *unused) {
    static struct line lines[STREAMS];
    static struct step steps[STREAMS][ROUNDS];
    CUfunction busy;
    CUmodule module;
    CUdeviceptr memory;

    (void)unused;
    begin();
    OK(cu.cuMemAlloc_v2(&memory, 4096));
    OK(cu.cuModuleLoadData(&module, ptx));
    OK(cu.cuModuleGetFunction(&busy, module, "divvy_busy_ns"));
    for (unsigned s = 0; s < STREAMS; s++) {
        OK(cu.cuStreamCreate(&lines[s].stream, 1));
        OK(cu.cuMemHostAlloc((void **)(uintptr_t)&lines[s].copied, 64, 0));
        lines[s].right = true;
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        for (unsigned s = 0; s < STREAMS; s++) {
            steps[s][i] = (struct step){&lines[s], i};
            work_before(busy, memory + 64 * s, i, &lines[s]);
            if (i % 3 == 0) {
                OK(cu.cuStreamAddCallback(lines[s].stream, take_step_of_stream, &steps[s][i], 0));
            } else if (i % 3 == 1) {
                OK(cu.cuLaunchHostFunc(lines[s].stream, take_step, &steps[s][i]));
            } else {
                OK(cu.cuLaunchHostFunc_v2(lines[s].stream, take_step, &steps[s][i], 0));
            }
        }
    }
    for (unsigned s = 0; s < STREAMS; s++) {
        OK(cu.cuStreamSynchronize(lines[s].stream));
        CHECK_EQUAL(lines[s].next, ROUNDS);
        CHECK(lines[s].right);
        CHECK(!pthread_equal(lines[s].thread, pthread_self()));
    }
    OK(cu.cuCtxDestroy_v2(context));
}

static CUresult inner[4];

static void call_inside(void *data) {
    CUdevice device;

    inner[0] = cu.cuDeviceGet(&device, 0);
    inner[1] = cu.cuMemAlloc_v2(data, 64);
    inner[2] = cu.cuCtxSynchronize();
    inner[3] = cu.cuLaunchHostFunc(0, call_inside, NULL);
}

/* They must not call the driver. */
static void check_inside(void *unused) {
    CUdeviceptr memory = 7;

    (void)unused;
    begin();
    OK(cu.cuLaunchHostFunc(0, call_inside, &memory));
    OK(cu.cuCtxSynchronize());
    for (unsigned i = 1; i < 4; i++) {
        CHECK_EQUAL(inner[i], CUDA_ERROR_NOT_PERMITTED);
    }
    CHECK_EQUAL(memory, 7);
    OK(cu.cuMemAlloc_v2(&memory, 64));
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool entered, released;

static void wait_until_released(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    entered = true;
    pthread_cond_broadcast(&changed);
    while (!released) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

static void await_entered(void) {
    pthread_mutex_lock(&lock);
    while (!entered) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

static void release(void) {
    pthread_mutex_lock(&lock);
    released = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* One that does not return holds up its own stream, and nothing else. */
static void check_blocked(void *unused) {
    CUstream one, other;
    CUdeviceptr memory;

    (void)unused;
    begin();
    OK(cu.cuStreamCreate(&one, 1));
    OK(cu.cuStreamCreate(&other, 1));
    OK(cu.cuMemAlloc_v2(&memory, 4096));
    OK(cu.cuLaunchHostFunc(one, wait_until_released, NULL));
    await_entered();
    for (unsigned i = 0; i < 100; i++) {
        OK(cu.cuMemsetD32Async(memory, i, 16, other));
        OK(cu.cuStreamSynchronize(other));
    }
    CHECK_EQUAL(cu.cuStreamQuery(one), CUDA_ERROR_NOT_READY);
    release();
    OK(cu.cuStreamSynchronize(one));
    OK(cu.cuStreamQuery(one));
}

static void count(void *data) {
    ++*(unsigned *)data;
}

static void *free_it(void *memory) {
    OK(cu.cuCtxSetCurrent(context));
    OK(cu.cuMemFree_v2(*(CUdeviceptr *)memory));
    return NULL;
}

/* What waits in the driver for a function, as freeing its memory does, does not keep it from returning. */
static void check_freeing(void *unused) {
    CUstream stream;
    unsigned called = 0;

    (void)unused;
    begin();
    OK(cu.cuStreamCreate(&stream, 1));
    for (unsigned i = 1; i <= 300; i++) {
        CUdeviceptr memory;

        OK(cu.cuMemAlloc_v2(&memory, 4096));
        OK(cu.cuMemsetD32Async(memory, i, 16, stream));
        OK(cu.cuLaunchHostFunc(stream, count, &called));
        OK(cu.cuMemsetD32Async(memory, i, 16, stream));
        OK(cu.cuMemFree_v2(memory));
    }
    OK(cu.cuStreamSynchronize(stream));
    CHECK_EQUAL(called, 300);
    /* The same for sure: the function waits, and so does the thread that frees. */
    CUdeviceptr memory;
    pthread_t thread;
    OK(cu.cuMemAlloc_v2(&memory, 4096));
    OK(cu.cuLaunchHostFunc(stream, wait_until_released, NULL));
    OK(cu.cuMemsetD32Async(memory, 1, 16, stream));
    await_entered();
    CHECK(pthread_create(&thread, NULL, free_it, &memory) == 0);
    release();
    pthread_join(thread, NULL);
    OK(cu.cuStreamSynchronize(stream));
}

static void *crowd(void *unused) {
    CUstream stream;
    unsigned called = 0;

    (void)unused;
    OK(cu.cuCtxSetCurrent(context));
    OK(cu.cuStreamCreate(&stream, 1));
    for (unsigned i = 1; i <= ROUNDS; i++) {
        CUdeviceptr memory;

        OK(cu.cuMemAlloc_v2(&memory, 4096));
        OK(cu.cuLaunchHostFunc(stream, count, &called));
        OK(cu.cuMemsetD32Async(memory, i, 16, stream));
        OK(cu.cuMemFree_v2(memory));
        if (i % 4 == 0) {
            OK(cu.cuStreamSynchronize(stream));
            CHECK_EQUAL(called, i);
        }
    }
    OK(cu.cuStreamDestroy_v2(stream));
    return NULL;
}

/* Several threads at once: whoever takes frames for the executor hands on what is not for itself. */
static void check_crowd(void *unused) {
    pthread_t threads[STREAMS];

    (void)unused;
    begin();
    for (unsigned i = 0; i < STREAMS; i++) {
        CHECK(pthread_create(&threads[i], NULL, crowd, NULL) == 0);
    }
    for (unsigned i = 0; i < STREAMS; i++) {
        pthread_join(threads[i], NULL);
    }
    OK(cu.cuCtxDestroy_v2(context));
}

/* A function that a graph has is called with each launch, and is told by its node. */
static void check_captured(void *unused) {
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    unsigned called = 0;

    (void)unused;
    begin();
    OK(cu.cuStreamCreate(&stream, 1));
    OK(cu.cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)CAPTURE_RELAXED));
    OK(cu.cuLaunchHostFunc(stream, count, &called));
    OK(cu.cuLaunchHostFunc(stream, count, &called));
    OK(cu.cuStreamEndCapture(stream, &graph));
    CHECK_EQUAL(called, 0);
    OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (unsigned i = 0; i < 10; i++) {
        OK(cu.cuGraphLaunch(exec, stream));
    }
    OK(cu.cuStreamSynchronize(stream));
    CHECK_EQUAL(called, 20);
    OK(cu.cuGraphExecDestroy(exec));
    OK(cu.cuGraphDestroy(graph));
}

/* What the client judges; the driver itself looks into a stream that is none. */
static void refused(void *unused) {
    CUstream stream;

    (void)unused;
    begin();
    CHECK_EQUAL(cu.cuLaunchHostFunc(0, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cu.cuStreamAddCallback(0, NULL, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cu.cuStreamAddCallback(0, take_step_of_stream, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cu.cuLaunchHostFunc((CUstream)0x4711, count, NULL), CUDA_ERROR_INVALID_HANDLE);
    OK(cu.cuStreamCreate(&stream, 1));
    OK(cu.cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)CAPTURE_RELAXED));
    CHECK_EQUAL(cu.cuStreamAddCallback(stream, take_step_of_stream, NULL, 0),
                CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

/* Nodes that are not served. */
static void refused_nodes(void *unused) {
    static const CUgraphNodeType types[] = {CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL,
                                            CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
                                            CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = types,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .WidthInBytes = 4,
                          .Height = 1,
                          .Depth = 1};
    CUgraphNode node = (CUgraphNode)(uint64_t)7;
    CUgraph graph;

    (void)unused;
    begin();
    OK(cu.cuGraphCreate(&graph, 0));
    OK(cu.cuMemAlloc_v2(&copy.dstDevice, 64));
    for (unsigned i = 0; i < 3; i++) {
        CUgraphNodeParams p = {.type = types[i]};

        CHECK_EQUAL(cu.cuGraphAddNode(&node, graph, NULL, 0, &p), CUDA_ERROR_NOT_SUPPORTED);
    }
    /* Memory that the worker does not see. */
    CHECK_EQUAL(cu.cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context),
                CUDA_ERROR_NOT_SUPPORTED);
    copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.srcDevice = (CUdeviceptr)types;
    CHECK_EQUAL(cu.cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context),
                CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQUAL((uint64_t)node, 7);
    CHECK_EQUAL(cu.cuGraphAddHostNode(&node, (CUgraph)(uint64_t)0x4711, NULL, 0, NULL),
                CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuGraphDestroy(graph));
    CHECK_EQUAL(cu.cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
}

static void *synchronize(void *stream) {
    OK(cu.cuCtxSetCurrent(context));
    CHECK_EQUAL(cu.cuStreamSynchronize(stream), CUDA_ERROR_DEVICE_UNAVAILABLE);
    return NULL;
}

/* The worker ends while a function runs and another is due: the first returns to nobody, the second is not called. */
static void check_end(void *unused) {
    CUstream stream;
    pthread_t thread;
    unsigned called = 0;

    (void)unused;
    begin();
    OK(cu.cuStreamCreate(&stream, 1));
    OK(cu.cuLaunchHostFunc(stream, wait_until_released, NULL));
    OK(cu.cuLaunchHostFunc(stream, count, &called));
    await_entered();
    CHECK(pthread_create(&thread, NULL, synchronize, stream) == 0);
    whole_kill_worker();
    pthread_join(thread, NULL);
    release();
    CHECK_EQUAL(cu.cuStreamSynchronize(stream), CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHECK_EQUAL(cu.cuLaunchHostFunc(stream, count, &called), CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHECK_EQUAL(called, 0);
}

/* The program ends inside a function. */
static void leave_inside(void *unused) {
    CUstream stream;

    (void)unused;
    begin();
    OK(cu.cuStreamCreate(&stream, 1));
    OK(cu.cuLaunchHostFunc(stream, wait_until_released, NULL));
    await_entered();
}

int main(void) {
    whole_start();
    CHECK_EQUAL(whole_run(false, check_order, NULL), 0);
    CHECK_EQUAL(whole_run(true, check_order, NULL), 0);
    CHECK_EQUAL(whole_run(true, check_inside, NULL), 0);
    CHECK_EQUAL(whole_run(false, check_blocked, NULL), 0);
    CHECK_EQUAL(whole_run(true, check_blocked, NULL), 0);
    CHECK_EQUAL(whole_run(false, check_freeing, NULL), 0);
    CHECK_EQUAL(whole_run(true, check_freeing, NULL), 0);
    CHECK_EQUAL(whole_run(false, check_crowd, NULL), 0);
    CHECK_EQUAL(whole_run(true, check_crowd, NULL), 0);
    CHECK_EQUAL(whole_run(false, check_captured, NULL), 0);
    CHECK_EQUAL(whole_run(true, check_captured, NULL), 0);
    CHECK_EQUAL(whole_run(true, refused, NULL), 0);
    CHECK_EQUAL(whole_run(true, refused_nodes, NULL), 0);
    CHECK_EQUAL(whole_run(true, leave_inside, NULL), 0);
    whole_await_no_worker();
    CHECK_EQUAL(whole_run(true, check_end, NULL), 0);
    return 0;
}
