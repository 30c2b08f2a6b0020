/* Turns of a swap share: no call passes a closed gate, what is ordered is carried out in order, and
 * what could deadlock does not wait. The orders are the test's; bytes and GPU time are judged by the
 * simulated driver's record. */
#include "cuda/test/parts.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define THREADS 8
#define HELD_NS (30 * (uint64_t)MS)

/* One call of each kind. */
struct call {
    CUresult (*make)(CUstream stream);
    CUresult result;
    uint32_t done; /* atomic */
};

static CUresult launches(CUstream stream) {
    return busy_launch(&s, stream, US);
}
static CUresult fills(CUstream stream) {
    return CUDA(&s, cuMemsetD8Async)(parts[0], 1, PART, stream);
}
static CUresult copies_in(CUstream stream) {
    static char from[4096];
    return CUDA(&s, cuMemcpyHtoDAsync_v2)(parts[0], from, sizeof from, stream);
}
static CUresult copies_out(CUstream stream) {
    static char to[4096];
    (void)stream;
    return CUDA(&s, cuMemcpyDtoH_v2)(to, parts[0], sizeof to);
}
static CUresult copies_within(CUstream stream) {
    return CUDA(&s, cuMemcpyDtoDAsync_v2)(parts[0], parts[1], PART, stream);
}
static CUresult prefetches(CUstream stream) {
    return CUDA(&s, cuMemPrefetchAsync)(parts[0], PART, 0, stream);
}

static void *call(void *arg) {
    struct call *of = arg;
    CUstream stream;
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    of->result = of->make(stream);
    __atomic_store_n(&of->done, 1, __ATOMIC_RELEASE);
    CHECK_EQUAL(CUDA(&s, cuStreamSynchronize)(stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    return NULL;
}

static void every_kind_waits(void) {
    CUresult (*const kinds[])(CUstream) = {launches,   fills,         copies_in,
                                           copies_out, copies_within, prefetches};
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct call one = {.make = kinds[i]};
        pthread_t thread;
        orders_await_done(&s, orders_give(DV_PAGE_TURN_AWAY, 0, 0));
        uint64_t time = sim_time(&s, 0);
        CHECK_EQUAL(pthread_create(&thread, NULL, call, &one), 0);
        orders_await_waiting(&s);
        orders_await_held(&s, HELD_NS);
        CHECK_EQUAL(__atomic_load_n(&one.done, __ATOMIC_ACQUIRE), 0);
        CHECK_EQUAL(sim_time(&s, 0), time);
        orders_give(DV_PAGE_TURN_RESIDENT, 0, UINT64_MAX);
        pthread_join(thread, NULL);
        CHECK_EQUAL(one.result, CUDA_SUCCESS);
        CHECK_EQUAL(orders_present(&s, 0).waits, 0);
    }
}

static void without_an_agent_the_gate_opens(void) {
    struct call one = {.make = launches};
    pthread_t thread;
    orders_await_done(&s, orders_give(DV_PAGE_TURN_AWAY, 0, 0));
    CHECK_EQUAL(pthread_create(&thread, NULL, call, &one), 0);
    orders_await_waiting(&s);
    orders_cease();
    pthread_join(thread, NULL);
    CHECK_EQUAL(one.result, CUDA_SUCCESS);
    CHECK_EQUAL(orders_present(&s, 0).waits, 0);
}

static uint32_t finish;
static uint64_t launched[THREADS];

static void *storm(void *arg) {
    uint64_t *count = arg;
    bool loads = (count - launched) % 2 != 0;
    CUstream stream;
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    while (__atomic_load_n(&finish, __ATOMIC_ACQUIRE) == 0) {
        CHECK_EQUAL(loads ? busy_launch_new(&s, stream) : busy_launch(&s, stream, 20 * US),
                    CUDA_SUCCESS);
        __atomic_add_fetch(count, 1, __ATOMIC_RELEASE);
        if (__atomic_load_n(count, __ATOMIC_RELAXED) % 16 == 0) {
            busy_sync(&s, stream);
        }
    }
    busy_sync(&s, stream);
    CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    return NULL;
}

static uint64_t launches_made(void) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        sum += __atomic_load_n(&launched[i], __ATOMIC_ACQUIRE);
    }
    return sum;
}

/* When the order is carried out, all that was given has ended, and nothing more is given. */
static void no_launch_passes_a_closed_gate(void) {
    pthread_t threads[THREADS];
    finish = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, storm, &launched[i]), 0);
    }
    for (unsigned round = 0; round < 8; round++) {
        orders_await_done(&s, orders_give(DV_PAGE_TURN_RESIDENT, 0, UINT64_MAX));
        for (uint64_t before = launches_made(); launches_made() < before + THREADS * 4;) {
            usleep(100);
        }
        orders_await_done(&s, orders_give(DV_PAGE_TURN_LEAVING, 0, 0));
        uint64_t time = sim_time(&s, 0);
        orders_await_held(&s, PARTS_LOAD_NS + HELD_NS);
        CHECK_EQUAL(sim_time(&s, 0), time);
    }
    orders_give(DV_PAGE_TURN_RESIDENT, 0, UINT64_MAX);
    __atomic_store_n(&finish, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* A capture in the strictest mode goes on while the gate is closed and streams are asked; the graph
 * waits when it is launched. */
static void captures_go_on(void) {
    CUstream stream, other;
    CUgraph graph;
    CUgraphExec exec;
    CUevent event;
    size_t nodes = 0;
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&other, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuEventCreate)(&event, 0), CUDA_SUCCESS);
    parts_use(0);
    CHECK_EQUAL(busy_launch(&s, other, US), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                CUDA_SUCCESS);
    uint64_t order = orders_give(DV_PAGE_TURN_LEAVING, 0, 0);
    CHECK_EQUAL(parts_go_over(parts[2], stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuEventRecord)(event, stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamWaitEvent)(other, event, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemsetD8Async)(parts[0], 0, 16, other), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuEventRecord)(event, other), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamWaitEvent)(stream, event, 0), CUDA_SUCCESS);
    orders_await_done(&s, order);
    CHECK_EQUAL(CUDA(&s, cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphGetNodes)(graph, NULL, &nodes), CUDA_SUCCESS);
    CHECK_EQUAL(nodes, 2);
    CHECK_EQUAL(CUDA(&s, cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
    parts_leave(3 * PART);
    parts_use(0);
    CHECK_EQUAL(CUDA(&s, cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
    busy_sync(&s, stream);
    /* What its kernel names was used. */
    parts_leave(3 * PART);
    CHECK_EQUAL(parts_resident(), 0);
    parts_enter(UINT64_MAX / 2);
    CHECK_EQUAL(parts_resident(), 2 * PART);
    parts_use(0);
    CHECK_EQUAL(CUDA(&s, cuGraphExecDestroy)(exec), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphDestroy)(graph), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuEventDestroy_v2)(event), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(other), CUDA_SUCCESS);
}

/* Records, waits and frees never wait for a turn. */
static void what_could_deadlock_goes_on(void) {
    CUevent event;
    CUstream stream;
    CUdeviceptr more;
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuEventCreate)(&event, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAllocManaged)(&more, MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    orders_await_done(&s, orders_give(DV_PAGE_TURN_AWAY, 0, 0));
    uint64_t held = orders_residence(&s, 0).held;
    CHECK_EQUAL(CUDA(&s, cuEventRecord)(event, stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamWaitEvent)(NULL, event, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuEventSynchronize)(event), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(more), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuEventDestroy_v2)(event), CUDA_SUCCESS);
    CHECK_EQUAL(orders_residence(&s, 0).held, held);
    parts_use(0);
}

static CUresult synchronises(CUstream stream) {
    return CUDA(&s, cuStreamSynchronize)(stream);
}
static CUresult allocates(CUstream stream) {
    CUdeviceptr got;
    (void)stream;
    CUresult result = CUDA(&s, cuMemAllocManaged)(&got, MIB, CU_MEM_ATTACH_GLOBAL);
    return result == CUDA_SUCCESS ? CUDA(&s, cuMemFree_v2)(got) : result;
}

static void all_that_the_driver_blocks_waits_while_suspended(void) {
    CUresult (*const kinds[])(CUstream) = {launches, synchronises, allocates};
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct call one = {.make = kinds[i]};
        pthread_t thread;
        orders_await_done(&s, orders_give(DV_PAGE_TURN_SUSPENDED, 0, 0));
        CHECK_EQUAL(pthread_create(&thread, NULL, call, &one), 0);
        orders_await_waiting(&s);
        orders_await_held(&s, HELD_NS);
        CHECK_EQUAL(__atomic_load_n(&one.done, __ATOMIC_ACQUIRE), 0);
        orders_give(DV_PAGE_TURN_RESIDENT, 0, UINT64_MAX);
        pthread_join(thread, NULL);
        CHECK_EQUAL(one.result, CUDA_SUCCESS);
    }
}

/* The thread's way to the GPU ends with the context, in whatever it is doing, and it finds another.
 */
static void contexts_end_in_the_middle(void) {
    CUcontext other;
    CUdeviceptr memory;
    CUstream stream;
    for (unsigned i = 0; i < 20; i++) {
        CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&other, 0, 0), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(&s, cuMemAllocManaged)(&memory, PART, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
        orders_await_done(&s, orders_give(DV_PAGE_TURN_RESIDENT, 0, UINT64_MAX));
        CHECK_EQUAL(CUDA(&s, cuMemsetD8Async)(memory, 1, PART, stream), CUDA_SUCCESS);
        uint64_t order = orders_give(DV_PAGE_TURN_LEAVING, 4 * PART, 0);
        CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(other), CUDA_SUCCESS);
        orders_await_done(&s, order);
        orders_await_done(&s, orders_give(DV_PAGE_TURN_ENTERING, 0, 4 * PART));
    }
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(context), CUDA_SUCCESS);
}

int main(void) {
    parts_begin();
    every_kind_waits();
    without_an_agent_the_gate_opens();
    no_launch_passes_a_closed_gate();
    captures_go_on();
    what_could_deadlock_goes_on();
    all_that_the_driver_blocks_waits_while_suspended();
    contexts_end_in_the_middle();
    return 0;
}
