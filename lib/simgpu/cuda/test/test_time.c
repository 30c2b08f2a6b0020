/* Time to the nanosecond, on a virtual clock: events among a neighbour's slices, streams that
 * compute at once, copies beside kernels, graphs. */
#include <pthread.h>

#include "simgpu/cuda/test/cuda.h"

#define US 1000ull
#define SLICE (1000 * US)
#define EVENT 500ull

static struct sg_instance *in;
static struct sg_instance neighbour;

static void virtual(sim_machine *machine) {
    machine->virtual_clock = 1;
    machine->slice_ns = SLICE;
    machine->event_ns = EVENT;
    machine->queue_depth = 4;
}

static void move(uint64_t ns) {
    sg_clock_move(in, ns);
}

/* The moment that an event was reached at; it must have been. */
static uint64_t moment(CUevent event) {
    OK(cuEventQuery(event));
    return event->mark.moment;
}

static uint64_t executed(const struct sg_instance *client) {
    sg_advance(in, 0, sg_time(in));
    return sg_channel(client, client->id, 0)->executed;
}

static void neighbour_computes(uint64_t ns) {
    sg_submit(&neighbour, 0, sg_time(in),
              &(struct sg_work){.ns = ns, .engine = SG_ON_MULTIPROCESSORS, .multiprocessors = 1});
}

/* Everybody has done all; the next check begins at a round time. */
static void settle(void) {
    move(1000 * SLICE);
    CHECK_EQUAL(executed(in), sg_channel(in, in->id, 0)->submitted);
    CHECK_EQUAL(executed(&neighbour), sg_channel(in, neighbour.id, 0)->submitted);
}

/* A record on an idle stream waits for its process's turn as every command does. */
static void check_stamps(void) {
    CUevent a, b;
    float ms;

    OK(cuEventCreate(&a, 0));
    OK(cuEventCreate(&b, 0));
    settle();
    uint64_t t = sg_time(in), mine = executed(in), theirs = executed(&neighbour);
    neighbour_computes(10 * SLICE);
    move(300 * US);
    OK(cuEventRecord(a, NULL));
    OK(cuda_busy(NULL, 1500 * US));
    OK(cuEventRecord(b, NULL));
    FAILS(cuEventQuery(a), CUDA_ERROR_NOT_READY);
    FAILS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    FAILS(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_NOT_READY);
    move(700 * US);
    FAILS(cuEventQuery(a), CUDA_ERROR_NOT_READY);
    move(EVENT);
    CHECK_EQUAL(moment(a), t + SLICE + EVENT);
    /* Its slice ends before its kernel does; the rest comes after the neighbour's next slice. */
    move(2 * SLICE + 500 * US - 1);
    FAILS(cuEventQuery(b), CUDA_ERROR_NOT_READY);
    FAILS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    FAILS(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_NOT_READY);
    move(EVENT + 1);
    OK(cuStreamQuery(NULL));
    CHECK_EQUAL(moment(b), t + 3 * SLICE + 500 * US + 2 * EVENT);
    OK(cuEventElapsedTime(&ms, a, b));
    CHECK(ms == 2.5005f);
    CHECK_EQUAL(executed(in) - mine, 1500 * US + 2 * EVENT);
    CHECK_EQUAL(executed(&neighbour) - theirs, 2 * SLICE);
    OK(cuEventDestroy_v2(a));
    OK(cuEventDestroy_v2(b));
}

/* ---- within the process ---- */

static CUresult busy_blocks(CUstream stream, uint64_t ns, unsigned blocks) {
    void *params[] = {&ns};

    return cuLaunchKernel(cuda_kernel("divvy_busy_ns"), blocks, 1, 1, 32, 1, 1, 0, stream, params,
                          NULL);
}

/* An event's record in the stream, and how long after `from` it was reached once all is done. */
static CUevent mark(CUstream stream) {
    CUevent event;

    OK(cuEventCreate(&event, 0));
    OK(cuEventRecord(event, stream));
    return event;
}

static uint64_t reached_after(uint64_t from, CUevent event) {
    uint64_t at = moment(event);

    OK(cuEventDestroy_v2(event));
    return at - from;
}

/* Kernels of several streams run at once while there are multiprocessors for all (the machine has
 * ten); those of one stream run one after another. */
static void check_streams(void) {
    CUstream s[3];
    CUevent e[3];

    for (int i = 0; i < 3; i++) {
        OK(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
    }
    settle();
    uint64_t t = sg_time(in), before = executed(in);
    OK(busy_blocks(s[0], 400 * US, 4));
    OK(busy_blocks(s[0], 100 * US, 1000000));
    OK(busy_blocks(s[1], 300 * US, 6));
    OK(busy_blocks(s[1], 50 * US, 7));
    OK(busy_blocks(s[2], 10 * US, 1));
    for (int i = 0; i < 3; i++) {
        e[i] = mark(s[i]);
    }
    settle();
    /* The second kernel of the first stream fills the GPU; what was issued later and does not fit
     * before it comes after it. The third stream's fits when the second's first one has ended. */
    CHECK_EQUAL(reached_after(t, e[0]), 500 * US + EVENT);
    CHECK_EQUAL(reached_after(t, e[1]), 550 * US + EVENT);
    CHECK_EQUAL(reached_after(t, e[2]), 310 * US + EVENT);
    CHECK_EQUAL(executed(in) - before, 550 * US + EVENT);
    for (int i = 0; i < 3; i++) {
        OK(cuStreamDestroy_v2(s[i]));
    }
}

/* Events order streams, and so do the legacy stream and the blocking ones. */
static void check_dependencies(void) {
    CUstream s, blocking;

    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    settle();
    uint64_t t = sg_time(in);
    OK(busy_blocks(blocking, 100 * US, 1));
    CUevent first = mark(blocking);
    OK(cuStreamWaitEvent(s, first, 0));
    OK(busy_blocks(s, 20 * US, 1));
    CUevent second = mark(s);
    OK(busy_blocks(NULL, 30 * US, 1));
    CUevent legacy = mark(NULL);
    OK(busy_blocks(CU_STREAM_PER_THREAD, 40 * US, 1));
    CUevent thread = mark(CU_STREAM_PER_THREAD);
    settle();
    CHECK_EQUAL(reached_after(t, first), 100 * US + EVENT);
    CHECK_EQUAL(reached_after(t, second), 120 * US + 2 * EVENT);
    CHECK_EQUAL(reached_after(t, legacy), 130 * US + 2 * EVENT);
    CHECK_EQUAL(reached_after(t, thread), 170 * US + 3 * EVENT);
    OK(cuStreamDestroy_v2(s));
    OK(cuStreamDestroy_v2(blocking));
}

/* Copies to and from the host run beside kernels and each other, at 25 GB/s; those within the
 * memory and fills take the whole GPU, at 2 TB/s. */
static void check_copies(void) {
    enum { BYTES = 1000000 };
    static char host[2][BYTES];
    CUstream s[4];
    CUevent e[4];
    CUdeviceptr a, b;

    OK(cuMemAlloc_v2(&a, BYTES));
    OK(cuMemAlloc_v2(&b, BYTES));
    for (int i = 0; i < 4; i++) {
        OK(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
    }
    settle();
    uint64_t t = sg_time(in), before = executed(in);
    OK(busy_blocks(s[0], 100 * US, 10));
    OK(cuMemcpyHtoDAsync_v2(a, host[0], BYTES, s[1]));
    OK(cuMemcpyHtoDAsync_v2(a, host[0], BYTES, s[2]));
    OK(cuMemcpyDtoHAsync_v2(host[1], b, BYTES, s[3]));
    for (int i = 0; i < 4; i++) {
        e[i] = mark(s[i]);
    }
    settle();
    CHECK_EQUAL(reached_after(t, e[0]), 100 * US + EVENT);
    CHECK_EQUAL(reached_after(t, e[1]), 40 * US + EVENT);
    CHECK_EQUAL(reached_after(t, e[2]), 80 * US + EVENT);
    CHECK_EQUAL(reached_after(t, e[3]), 40 * US + EVENT);
    CHECK_EQUAL(executed(in) - before, 100 * US + EVENT);
    t = sg_time(in);
    OK(busy_blocks(s[0], 10 * US, 1));
    OK(cuMemcpyDtoDAsync_v2(a, b, BYTES, s[1]));
    OK(cuMemsetD8Async(b, 0, BYTES, s[2]));
    for (int i = 0; i < 3; i++) {
        e[i] = mark(s[i]);
    }
    settle();
    CHECK_EQUAL(reached_after(t, e[0]), 10 * US + EVENT);
    CHECK_EQUAL(reached_after(t, e[1]), 11 * US + EVENT);
    CHECK_EQUAL(reached_after(t, e[2]), 11 * US + 500 + EVENT);
    for (int i = 0; i < 4; i++) {
        OK(cuStreamDestroy_v2(s[i]));
    }
    OK(cuMemFree_v2(a));
    OK(cuMemFree_v2(b));
}

static CUgraphNode add_busy(CUgraph graph, const CUgraphNode *before, size_t count, uint64_t ns,
                            unsigned blocks) {
    void *params[] = {&ns};
    CUDA_KERNEL_NODE_PARAMS_v1 p = {.func = cuda_kernel("divvy_busy_ns"),
                                    .gridDimX = blocks,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 1,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .kernelParams = params};
    CUgraphNode node;

    OK(cuGraphAddKernelNode(&node, graph, before, count, &p));
    return node;
}

/* Independent nodes run at once, also those of a child graph; what depends on them comes after the
 * last. A launch is one entry of a queue that holds four. */
static void check_graph(void) {
    CUgraph graph, child;
    CUgraphNode nodes[3];
    CUgraphExec exec;
    CUstream s;

    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&child, 0));
    add_busy(child, NULL, 0, 20 * US, 1);
    add_busy(child, NULL, 0, 70 * US, 1);
    nodes[0] = add_busy(graph, NULL, 0, 10 * US, 1);
    nodes[1] = add_busy(graph, nodes, 1, 50 * US, 3);
    OK(cuGraphAddChildGraphNode(&nodes[2], graph, nodes, 1, child));
    add_busy(graph, nodes + 1, 2, 5 * US, 1);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    settle();
    uint64_t t = sg_time(in), before = executed(in);
    for (int i = 0; i < 4; i++) {
        OK(cuGraphLaunch(exec, s));
    }
    settle();
    CHECK_EQUAL(executed(in) - before, 4 * 85 * US);
    t = sg_time(in);
    OK(busy_blocks(s, 7 * US, 1));
    OK(cuGraphLaunch(exec, s));
    CUevent event = mark(s);
    settle();
    CHECK_EQUAL(reached_after(t, event), 92 * US + EVENT);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(child));
    OK(cuStreamDestroy_v2(s));
}

static int ended;

static void *wait_for_work(void *stream) {
    OK(cuStreamSynchronize(stream));
    __atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void *launch_once_more(void *stream) {
    OK(cuda_busy(stream, 10 * US));
    __atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Lets a thread wait until the clock has moved by just so much. */
static void waits_for(uint64_t ns, void *(*body)(void *), CUstream s) {
    pthread_t thread;
    uint64_t t = sg_time(in);

    ended = 0;
    CHECK_EQUAL(pthread_create(&thread, NULL, body, s), 0);
    move(ns - 1);
    setting_pause();
    CHECK(!__atomic_load_n(&ended, __ATOMIC_ACQUIRE));
    move(1);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
    CHECK_EQUAL(sg_time(in) - t, ns);
}

/* Who waits for the GPU waits for the clock: for its work, or for room in the queue, which four
 * launches fill without waiting. */
static void check_waiting(void) {
    CUstream s;

    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    settle();
    OK(cuda_busy(s, 10 * US));
    waits_for(10 * US, wait_for_work, s);
    for (int i = 0; i < 4; i++) {
        OK(cuda_busy(s, 10 * US));
    }
    FAILS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    waits_for(10 * US, launch_once_more, s);
    waits_for(40 * US, wait_for_work, s);
    OK(cuStreamDestroy_v2(s));
}

int main(void) {
    cuda_start(virtual);
    in = &sg_driver.instance;
    CHECK_EQUAL(sg_open(&neighbour, in->dir, "neighbour", true), 0);
    check_stamps();
    check_streams();
    check_dependencies();
    check_copies();
    check_graph();
    check_waiting();
    sg_close(&neighbour);
    return 0;
}
