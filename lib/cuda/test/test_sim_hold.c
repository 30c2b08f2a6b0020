/* With the bucket deep in debt and nothing coming in, launches wait and nothing else does. */
#include "cuda/test/busy.h"

#include <stddef.h>
#include <string.h>

#include "share/time.h"

static struct setting s;
static CUstream stream, other;
static CUevent event;
static CUdeviceptr memory, word;
static char host[64];

static void into_debt(void) {
    busy_budget.rate = busy_budget.base = 0;
    busy_budget.correction = -(int64_t)DV_TIME_DEBT_NS;
    busy_grant(&s, 0);
}

static void out_of_debt(void) {
    busy_budget.correction += 2 * (int64_t)DV_TIME_DEBT_NS;
    busy_budget.rate = busy_budget.base = DV_PAGE_WHOLE;
    busy_grant(&s, 0);
}

/* None waited since, so none would ever have. */
static void check_nothing_waited(void) {
    dv_page_bucket bucket = busy_bucket(&s, 0);
    CHECK_EQUAL(bucket.waited, 0);
    CHECK_EQUAL(bucket.wanted, 0);
    CHECK_EQUAL(bucket.overdrawn, 0);
}

static void called(void *arg) {
    __atomic_add_fetch((int *)arg, 1, __ATOMIC_RELEASE);
}

static void called_back(CUstream in, CUresult result, void *arg) {
    (void)in;
    (void)result;
    called(arg);
}

static void order_is_not_held_up(void) {
    int calls = 0;
    CHECK_EQUAL(CUDA(&s, cuEventRecord)(event, stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamWaitEvent)(other, event, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuLaunchHostFunc)(other, called, &calls), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamAddCallback)(stream, called_back, &calls, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamWriteValue32_v2)(stream, word, 7, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamWaitValue32_v2)(other, word, 7, CU_STREAM_WAIT_VALUE_EQ),
                CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemcpyHtoDAsync_v2)(memory, host, sizeof host, stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemcpyDtoH_v2)(host, memory, sizeof host), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuEventSynchronize)(event), CUDA_SUCCESS);
    busy_sync(&s, other);
    busy_sync(&s, stream);
    CHECK_EQUAL(CUDA(&s, cuStreamQuery)(stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQUAL(__atomic_load_n(&calls, __ATOMIC_ACQUIRE), 2);
    check_nothing_waited();
}

/* Work of another stream is under way meanwhile, of which we have events. */
static void capture_is_not_held_up(CUstreamCaptureMode mode) {
    CUgraph graph;
    uint64_t launches = busy_bucket(&s, 0).launches;
    CHECK_EQUAL(CUDA(&s, cuStreamBeginCapture_v2)(stream, mode), CUDA_SUCCESS);
    for (int i = 0; i < 300; i++) {
        CHECK_EQUAL(busy_launch(&s, stream, 30 * MS), CUDA_SUCCESS);
    }
    CHECK_EQUAL(CUDA(&s, cuMemsetD8Async)(memory, 1, sizeof host, stream), CUDA_SUCCESS);
    /* A stream that joins by an event is captured too. */
    CHECK_EQUAL(CUDA(&s, cuEventRecord)(event, stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamWaitEvent)(other, event, 0), CUDA_SUCCESS);
    CHECK_EQUAL(busy_launch(&s, other, 30 * MS), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuEventRecord)(event, other), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamWaitEvent)(stream, event, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    size_t nodes = 0;
    CHECK_EQUAL(CUDA(&s, cuGraphGetNodes)(graph, NULL, &nodes), CUDA_SUCCESS);
    CHECK_EQUAL(nodes, 302);
    CHECK_EQUAL(CUDA(&s, cuGraphDestroy)(graph), CUDA_SUCCESS);
    CHECK_EQUAL(busy_bucket(&s, 0).launches, launches);
    check_nothing_waited();
}

/* A capture of which one thread knows does not keep another's events from being read. */
static void captures_survive_events(CUstreamCaptureMode mode) {
    CUgraph graph;
    CUstream third;
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&third, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    for (int i = 0; i < 5; i++) {
        CHECK_EQUAL(busy_launch(&s, third, MS), CUDA_SUCCESS);
    }
    CHECK_EQUAL(CUDA(&s, cuStreamBeginCapture_v2)(stream, mode), CUDA_SUCCESS);
    for (int i = 0; i < 5; i++) {
        CHECK_EQUAL(busy_launch(&s, third, MS), CUDA_SUCCESS);
        CHECK_EQUAL(busy_launch(&s, stream, MS), CUDA_SUCCESS);
    }
    CHECK_EQUAL(CUDA(&s, cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphDestroy)(graph), CUDA_SUCCESS);
    busy_sync(&s, third);
    CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(third), CUDA_SUCCESS);
    CHECK_EQUAL(busy_worker(&s, 0).open_since, 0);
}

static void a_launch_is_admitted_on_debt_at_last(void) {
    dv_page_bucket before = busy_bucket(&s, 0);
    CHECK_EQUAL(busy_launch(&s, stream, MS), CUDA_SUCCESS);
    busy_sync(&s, stream);
    dv_page_bucket now = busy_bucket(&s, 0);
    CHECK_EQUAL(now.overdrawn - before.overdrawn, 1);
    CHECK(now.waited - before.waited >= DV_TIME_WAIT_NS);
    CHECK(now.wanted > before.wanted);
}

int main(void) {
    busy_make(&s, 1);
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuEventCreate)(&event, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&memory, sizeof host), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&word, 4), CUDA_SUCCESS);
    into_debt();
    order_is_not_held_up();
    capture_is_not_held_up(CU_STREAM_CAPTURE_MODE_GLOBAL);
    capture_is_not_held_up(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    capture_is_not_held_up(CU_STREAM_CAPTURE_MODE_RELAXED);
    out_of_debt();
    for (int i = 0; i < 10; i++) {
        CHECK_EQUAL(busy_launch(&s, stream, MS), CUDA_SUCCESS);
        busy_sync(&s, stream);
    }
    captures_survive_events(CU_STREAM_CAPTURE_MODE_GLOBAL);
    captures_survive_events(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    captures_survive_events(CU_STREAM_CAPTURE_MODE_RELAXED);
    into_debt();
    a_launch_is_admitted_on_debt_at_last();
    return 0;
}
