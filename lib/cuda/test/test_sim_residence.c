/* Turns of a swap share: no call passes a closed gate, what is ordered is carried out in order, and
 * what could deadlock does not wait. The orders are the test's; bytes and GPU time are judged by the
 * simulated driver's record. */
#include "cuda/test/orders.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define THREADS 8
#define PARTS 3
#define PART (64 * MIB)
#define LOAD_NS (80 * (uint64_t)MS)
#define HELD_NS (30 * (uint64_t)MS)

static struct setting s;
static CUcontext context;
static CUfunction sweep;
static CUdeviceptr parts[PARTS];

static const char image[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                            ".visible .entry divvy_busy_ns(.param .u64 a) { ret; }\n"
                            ".visible .entry divvy_sweep(.param .u64 p, .param .u64 b, .param .u32 "
                            "r, .param .u32 w, .param .u32 o, .param .u32 s, .param .u64 n) "
                            "{ ret; }\n";

static uint64_t resident(void) {
    sim_look();
    return sim_seen(&s, 0, "managed");
}

static CUresult go_over(CUdeviceptr part, CUstream stream) {
    uint64_t bytes = PART, ns = MS;
    unsigned reads = 1, writes = 1, order = 0, seed = 0;
    void *parameters[] = {&part, &bytes, &reads, &writes, &order, &seed, &ns};
    return CUDA(&s, cuLaunchKernel)(sweep, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

/* A turn in which the parts of a set are used, bit by bit. */
static void use(unsigned set) {
    orders_await_done(&s, orders_give(DV_PAGE_TURN_RESIDENT, 0, UINT64_MAX));
    for (unsigned i = 0; i < PARTS; i++) {
        if (set & 1u << i) {
            CHECK_EQUAL(go_over(parts[i], NULL), CUDA_SUCCESS);
        }
    }
    CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
}

static void leave(uint64_t give) {
    orders_await_done(&s, orders_give(DV_PAGE_TURN_LEAVING, give, 0));
    orders_await_done(&s, orders_give(DV_PAGE_TURN_AWAY, 0, 0));
}

static void enter(uint64_t room) {
    orders_await_done(&s, orders_give(DV_PAGE_TURN_ENTERING, 0, room));
}

static void begin(void) {
    CUmodule module;
    sim_load_ns = LOAD_NS;
    orders_make(&s, 1, (uint64_t)1 << 30, 256 * MIB);
    setting_open(&s);
    context = setting_context(&s);
    CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&module, image), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuModuleGetFunction)(&sweep, module, "divvy_sweep"), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAllocManaged)(&parts[0], PART, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    for (unsigned i = 1; i < PARTS; i++) {
        CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&parts[i], PART), CUDA_SUCCESS);
    }
    CHECK_EQUAL(busy_launch(&s, NULL, US), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
    while (orders_present(&s, 0).takes_part == 0) {
        usleep(500);
    }
    CHECK(orders_present(&s, 0).called != 0);
    CHECK_EQUAL(orders_present(&s, 0).waits, 0);
}

static void what_was_used_longest_ago_leaves_first(void) {
    use(1);
    leave(0);
    use(6);
    CHECK_EQUAL(resident(), 3 * PART);
    uint64_t in = sim_seen(&s, 0, "bytesIn"), out = sim_seen(&s, 0, "bytesOut");
    leave(PART);
    CHECK_EQUAL(resident(), 2 * PART);
    CHECK_EQUAL(sim_seen(&s, 0, "bytesOut") - out, PART);
    CHECK_EQUAL(orders_present(&s, 0).there, 2 * PART);
    /* What left was not used in the last turn, so nothing comes back by itself. */
    enter(UINT64_MAX / 2);
    CHECK_EQUAL(resident(), 2 * PART);
    use(1);
    CHECK_EQUAL(resident(), 3 * PART);
    CHECK_EQUAL(sim_seen(&s, 0, "bytesIn") - in, PART);
}

static void what_the_last_turn_used_comes_back(void) {
    use(3);
    leave(3 * PART);
    CHECK_EQUAL(resident(), 0);
    CHECK_EQUAL(orders_present(&s, 0).there, 0);
    CHECK_EQUAL(orders_residence(&s, 0).moved_out, 4 * PART);
    enter(PART); /* no more than there is room for */
    CHECK_EQUAL(resident(), PART);
    uint64_t in = sim_seen(&s, 0, "bytesIn");
    enter(UINT64_MAX / 2);
    CHECK_EQUAL(resident(), 2 * PART);
    CHECK_EQUAL(sim_seen(&s, 0, "bytesIn") - in, PART);
    CHECK_EQUAL(orders_residence(&s, 0).moved_in, 2 * PART);
    CHECK(orders_residence(&s, 0).moving > 0);
    in = sim_seen(&s, 0, "faults");
    use(3);
    sim_look();
    CHECK_EQUAL(sim_seen(&s, 0, "faults"), in);
}

static void a_part_of_an_allocation_leaves(void) {
    use(7);
    leave(PART + PART / 2);
    CHECK_EQUAL(resident(), PART + PART / 2);
    enter(UINT64_MAX / 2);
    CHECK_EQUAL(resident(), 3 * PART);
}

/* Others may have had the GPU since, of which the driver tells nobody. It counts as moved by them. */
static void what_was_displaced_comes_back(void) {
    use(6);
    leave(0);
    __extension__ __typeof__(&cuMemPrefetchAsync) move =
        (__typeof__(&cuMemPrefetchAsync))setting_real(&s, "cuMemPrefetchAsync");
    uint64_t there = resident(), moved = orders_residence(&s, 0).moved_in;
    CHECK_EQUAL(move(parts[2], PART, CU_DEVICE_CPU, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQUAL(resident(), there - PART);
    enter(UINT64_MAX / 2);
    CHECK_EQUAL(resident(), there);
    CHECK_EQUAL(orders_residence(&s, 0).moved_in, moved);
    uint64_t faults = sim_seen(&s, 0, "faults");
    use(6);
    CHECK_EQUAL(sim_seen(&s, 0, "faults"), faults);
}

/* A share that has launched nothing in its turn will go on with what it used before. */
static void a_turn_without_use_changes_nothing(void) {
    leave(0);
    use(3);
    leave(3 * PART);
    use(0);
    leave(3 * PART);
    CHECK_EQUAL(resident(), 0);
    enter(UINT64_MAX / 2);
    CHECK_EQUAL(resident(), 2 * PART);
}

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

/* A kernel that was never launched, and of which the library does not know. The driver loads its code
 * inside its first launch, which takes so long that the gate often closes meanwhile. */
static CUresult launch_new(CUstream stream) {
    CUlibrary library;
    union {
        CUkernel kernel;
        CUfunction function;
    } as;
    uint64_t ns = 20 * US;
    void *parameters[] = {&ns};
    __extension__ __typeof__(&cuLibraryGetKernel) get =
        (__typeof__(&cuLibraryGetKernel))setting_real(&s, "cuLibraryGetKernel");
    CHECK_EQUAL(CUDA(&s, cuLibraryLoadData)(&library, image, NULL, NULL, 0, NULL, NULL, 0),
                CUDA_SUCCESS);
    CHECK_EQUAL(get(&as.kernel, library, "divvy_busy_ns"), CUDA_SUCCESS);
    CUresult result =
        CUDA(&s, cuLaunchKernel)(as.function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    busy_sync(&s, stream);
    CHECK_EQUAL(CUDA(&s, cuLibraryUnload)(library), CUDA_SUCCESS);
    return result;
}

static void *storm(void *arg) {
    uint64_t *count = arg;
    bool loads = (count - launched) % 2 != 0;
    CUstream stream;
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    while (__atomic_load_n(&finish, __ATOMIC_ACQUIRE) == 0) {
        CHECK_EQUAL(loads ? launch_new(stream) : busy_launch(&s, stream, 20 * US), CUDA_SUCCESS);
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
        orders_await_held(&s, LOAD_NS + HELD_NS);
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
    use(0);
    CHECK_EQUAL(busy_launch(&s, other, US), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                CUDA_SUCCESS);
    uint64_t order = orders_give(DV_PAGE_TURN_LEAVING, 0, 0);
    CHECK_EQUAL(go_over(parts[2], stream), CUDA_SUCCESS);
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
    leave(3 * PART);
    use(0);
    CHECK_EQUAL(CUDA(&s, cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
    busy_sync(&s, stream);
    /* What its kernel names was used. */
    leave(3 * PART);
    CHECK_EQUAL(resident(), 0);
    enter(UINT64_MAX / 2);
    CHECK_EQUAL(resident(), 2 * PART);
    use(0);
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
    use(0);
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
    begin();
    what_was_used_longest_ago_leaves_first();
    what_the_last_turn_used_comes_back();
    a_part_of_an_allocation_leaves();
    what_was_displaced_comes_back();
    a_turn_without_use_changes_nothing();
    every_kind_waits();
    without_an_agent_the_gate_opens();
    no_launch_passes_a_closed_gate();
    captures_go_on();
    what_could_deadlock_goes_on();
    all_that_the_driver_blocks_waits_while_suspended();
    contexts_end_in_the_middle();
    return 0;
}
