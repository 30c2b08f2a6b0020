/* Functions of the program that are captured again and again: each is kept once. */
#include "remote/test/whole.h"

#include "test/check.h"

#include <malloc.h>

#define ROUNDS 4096u
#define CAPTURE_RELAXED 2

static void count(void *called) {
    ++*(unsigned *)called;
}

static size_t memory_taken(void) {
    struct mallinfo2 now = mallinfo2();

    return now.uordblks + now.hblkhd;
}

/* A program that makes a graph for each step, and gives its stream the same function beside it. */
static void make_steps(CUstream stream, unsigned rounds, unsigned *called) {
    CUgraph graph;

    for (unsigned i = 0; i < rounds; i++) {
        OK(cu.cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)CAPTURE_RELAXED));
        OK(cu.cuLaunchHostFunc(stream, count, called));
        OK(cu.cuStreamEndCapture(stream, &graph));
        OK(cu.cuGraphDestroy(graph));
        OK(cu.cuLaunchHostFunc(stream, count, called));
        OK(cu.cuStreamSynchronize(stream));
    }
}

static void check_steps(void *unused) {
    CUcontext context;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    unsigned called = 0;

    (void)unused;
    OK(cu.cuInit(0));
    OK(cu.cuCtxCreate_v2(&context, 0, 0));
    OK(cu.cuStreamCreate(&stream, 1));
    make_steps(stream, 1, &called);
    size_t before = memory_taken();
    make_steps(stream, ROUNDS, &called);
    size_t after = memory_taken();
    /* Less than a byte for each, where a function and its data alone have sixteen. */
    CHECK(after < before + ROUNDS);
    CHECK_EQUAL(called, 1 + ROUNDS);
    /* What was called once in a stream meanwhile is still called with each launch of a graph. */
    OK(cu.cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)CAPTURE_RELAXED));
    OK(cu.cuLaunchHostFunc(stream, count, &called));
    OK(cu.cuStreamEndCapture(stream, &graph));
    OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cu.cuGraphLaunch(exec, stream));
    OK(cu.cuLaunchHostFunc(stream, count, &called));
    OK(cu.cuGraphLaunch(exec, stream));
    OK(cu.cuStreamSynchronize(stream));
    CHECK_EQUAL(called, 4 + ROUNDS);
}

int main(void) {
    whole_start();
    CHECK_EQUAL(whole_run(true, check_steps, NULL), 0);
    return 0;
}
