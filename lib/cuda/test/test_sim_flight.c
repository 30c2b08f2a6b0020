/* What is under way when its stream, context or process goes, or when many launch at once. */
#include "cuda/test/busy.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define STREAMS 4
#define LAUNCHES 200 /* by each thread into each of its streams */
#define TRIES 10

static struct setting s;
static CUcontext context;

/* Intervals are in order, apart from each other, and nothing is left open. */
static void check_intervals(void) {
    dv_page_worker worker = busy_worker(&s, 0);
    uint32_t first = worker.count > DV_PAGE_INTERVALS ? worker.count - DV_PAGE_INTERVALS : 0;
    uint64_t end = 0;
    for (uint32_t i = first; i < worker.count; i++) {
        const dv_page_interval *interval = &worker.interval[i % DV_PAGE_INTERVALS];
        CHECK(interval->begin >= end && interval->end >= interval->begin);
        end = interval->end;
    }
    CHECK_EQUAL(worker.open_since, 0);
}

static CUstream new_stream(void) {
    CUstream stream;
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
}

static void launch(CUstream stream, unsigned count, uint64_t ns) {
    while (count-- > 0) {
        CHECK_EQUAL(busy_launch(&s, stream, ns), CUDA_SUCCESS);
    }
}

static void streams_end_with_work_in_flight(void) {
    uint64_t before = busy_bucket(&s, 0).launches;
    for (int i = 0; i < 20; i++) {
        CUstream stream = new_stream();
        launch(stream, 5, MS);
        CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    }
    CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQUAL(busy_bucket(&s, 0).launches - before, 100);
    check_intervals();
}

static void contexts_end_with_work_in_flight(void) {
    uint64_t before = busy_bucket(&s, 0).launches;
    for (int i = 0; i < 4; i++) {
        CUcontext mine;
        CUmodule module;
        CUfunction function;
        uint64_t ns = MS;
        void *parameters[] = {&ns};
        CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&mine, 0, 0), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&module, busy_image), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(&s, cuModuleGetFunction)(&function, module, "divvy_busy_ns"),
                    CUDA_SUCCESS);
        CUstream stream = new_stream();
        for (int j = 0; j < 10; j++) {
            CHECK_EQUAL(CUDA(&s, cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0,
                                                 j % 2 ? stream : NULL, parameters, NULL),
                        CUDA_SUCCESS);
        }
        CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(mine), CUDA_SUCCESS);
    }
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CHECK_EQUAL(busy_bucket(&s, 0).launches - before, 40);
    check_intervals();
}

/* Nobody knows what the first launch costs. It is found to be cheap after cheaper ones have followed,
 * so that less is charged together with these than was charged before. */
static void launches_count_beside_a_lower_price(void) {
    CUmodule module;
    CUfunction function;
    uint64_t ns = US;
    void *parameters[] = {&ns};
    CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&module, busy_image), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuModuleGetFunction)(&function, module, "divvy_busy_ns"), CUDA_SUCCESS);
    for (unsigned grid = 2; grid < 22; grid++) {
        CUstream stream = new_stream();
        uint64_t before = busy_bucket(&s, 0).launches;
        for (int i = 0; i < 5; i++) {
            CHECK_EQUAL(CUDA(&s, cuLaunchKernel)(function, grid, 1, 1, 1, 1, 1, 0, stream,
                                                 parameters, NULL),
                        CUDA_SUCCESS);
        }
        busy_sync(&s, stream);
        CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
        CHECK_EQUAL(busy_bucket(&s, 0).launches - before, 5);
    }
    CHECK_EQUAL(CUDA(&s, cuModuleUnload)(module), CUDA_SUCCESS);
}

static void *launch_into_streams(void *unused) {
    CUstream streams[STREAMS];
    (void)unused;
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(context), CUDA_SUCCESS);
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = new_stream();
    }
    for (int i = 0; i < LAUNCHES; i++) {
        for (int j = 0; j < STREAMS; j++) {
            launch(streams[j], 1, 20 * US);
        }
        if (i % 50 == 49) {
            busy_sync(&s, streams[i % STREAMS]);
        }
    }
    for (int i = 0; i < STREAMS; i++) {
        CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(streams[i]), CUDA_SUCCESS);
    }
    return NULL;
}

static void many_launch_at_once(void) {
    pthread_t threads[THREADS];
    uint64_t before = busy_bucket(&s, 0).launches;
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, launch_into_streams, NULL), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK_EQUAL(busy_bucket(&s, 0).launches - before, THREADS * STREAMS * LAUNCHES);
    check_intervals();
}

/* The child of a fork has none of its parent's work: it neither charges nor tells it. */
static void a_child_starts_anew(void) {
    CUstream stream = new_stream();
    uint64_t before = busy_bucket(&s, 0).launches;
    launch(stream, 3, 10 * US);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CUDA(&s, cuStreamSynchronize)(stream);
        CUDA(&s, cuStreamDestroy_v2)(stream);
        busy_launch(&s, NULL, MS);
        _exit(busy_bucket(&s, 0).launches - before > 3);
    }
    int status;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    CHECK_EQUAL(busy_bucket(&s, 0).launches - before, 3);
}

static CUgraphExec graph_of(uint64_t ns, CUgraph *graph, CUgraphNode *node) {
    CUgraphExec exec;
    void *parameters[] = {&ns};
    CUDA_KERNEL_NODE_PARAMS_v1 params = {.func = busy_kernel(&s),
                                         .gridDimX = 1,
                                         .gridDimY = 1,
                                         .gridDimZ = 1,
                                         .blockDimX = 1,
                                         .blockDimY = 1,
                                         .blockDimZ = 1,
                                         .kernelParams = parameters};
    CHECK_EQUAL(CUDA(&s, cuGraphCreate)(graph, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphAddKernelNode)(node, *graph, NULL, 0, &params), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphInstantiateWithFlags)(&exec, *graph, 0), CUDA_SUCCESS);
    return exec;
}

/* Charged for one launch of the graph, once its cost is known. */
static uint64_t price(CUgraphExec exec, CUstream stream) {
    uint64_t charged = 0;
    for (int i = 0; i < 6; i++) {
        charged = busy_bucket(&s, 0).charged;
        CHECK_EQUAL(CUDA(&s, cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
        busy_sync(&s, stream);
    }
    return busy_bucket(&s, 0).charged - charged;
}

/* Returns whether both prices were right. */
static bool costs_anew(void) {
    CUgraph graph, longer;
    CUgraphNode node, fault;
    CUgraphExecUpdateResultInfo why;
    CUstream stream = new_stream();
    CUgraphExec exec = graph_of(MS, &graph, &node);
    bool right = price(exec, stream) < 4 * MS;
    CUgraphExec unused = graph_of(20 * MS, &longer, &fault);
    CHECK_EQUAL(CUDA(&s, cuGraphExecUpdate_v2)(exec, longer, &why), CUDA_SUCCESS);
    right = price(exec, stream) > 10 * MS && right;
    CHECK_EQUAL(CUDA(&s, cuGraphExecDestroy)(unused), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphExecDestroy)(exec), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphDestroy)(longer), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphDestroy)(graph), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    return right;
}

/* A program that is kept from its processor beside a launch measures too much or too little, but not each time. */
static void a_changed_graph_costs_anew(void) {
    unsigned tries = 1;
    while (!costs_anew()) {
        CHECK(tries++ < TRIES);
    }
}

/* Whether or not the driver knows checkpoints: what was under way is told as not measured. */
static void a_checkpoint_finds_nothing_under_way(void) {
    CUstream stream = new_stream();
    uint64_t before = busy_bucket(&s, 0).launches;
    launch(stream, 3, MS);
    CUDA(&s, cuCheckpointProcessLock)(getpid(), NULL);
    check_intervals();
    CHECK_EQUAL(busy_bucket(&s, 0).launches - before, 3);
    CUDA(&s, cuCheckpointProcessUnlock)(getpid(), NULL);
    launch(stream, 3, MS);
    busy_sync(&s, stream);
    CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    CHECK_EQUAL(busy_bucket(&s, 0).launches - before, 6);
    check_intervals();
}

int main(void) {
    busy_make(&s, 1);
    CHECK_EQUAL(CUDA(&s, cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    streams_end_with_work_in_flight();
    contexts_end_with_work_in_flight();
    launches_count_beside_a_lower_price();
    many_launch_at_once();
    a_changed_graph_costs_anew();
    a_checkpoint_finds_nothing_under_way();
    a_child_starts_anew();
    return 0;
}
