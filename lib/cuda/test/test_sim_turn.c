/* A capped share keeps to its cap from the first launch on, whatever is unknown and whoever
 * launches; and what waits for each other still ends. Judged by the simulated driver's record. */
#include "cuda/test/busy.h"

#include <pthread.h>
#include <stddef.h>
#include <time.h>

#include "share/time.h"

#define THREADS 8
#define PERCENT (DV_PAGE_WHOLE / 100)
#define SLACK_NS (15 * (uint64_t)MS) /* what a bucket holds and a wait is too short by */

static struct setting s;
static CUcontext context;
static uint64_t finish;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void allow(uint32_t percent, uint32_t flags) {
    busy_budget.rate = busy_budget.base = percent * PERCENT;
    busy_budget.flags = DV_PAGE_BUDGET_LIMITED | flags;
    busy_budget.burst = MS;
    busy_grant(&s, 0);
}

/* The shape tells kernels apart. */
static CUresult launch_shape(CUstream stream, unsigned shape, uint64_t ns) {
    void *parameters[] = {&ns};
    return CUDA(&s, cuLaunchKernel)(busy_kernel(&s), 1 + shape, 1, 1, 1, 1, 1, 0, stream,
                                    parameters, NULL);
}

static CUstream new_stream(void) {
    CUstream stream;
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
}

struct work {
    unsigned shape, shapes;
    uint64_t ns;
    bool destroys; /* its stream after each launch, without waiting */
};

static void *launch_on(void *arg) {
    const struct work *work = arg;
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CUstream stream = new_stream();
    for (unsigned i = 0; now_ns() < finish; i++) {
        unsigned shape = work->shape + i % work->shapes;
        CHECK_EQUAL(launch_shape(stream, shape, work->ns), CUDA_SUCCESS);
        if (work->destroys) {
            CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
            stream = new_stream();
        }
    }
    busy_sync(&s, stream);
    CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    return NULL;
}

#define TRIES 10

/* So many threads launch for so long. They use no more than the cap and one kernel. Returns whether
 * they also used half of it. */
static bool reaches_cap(struct work work, uint64_t ns) {
    pthread_t threads[THREADS];
    struct work works[THREADS];
    uint64_t outer = now_ns(), before = sim_time(&s, 0), begin = now_ns();
    finish = begin + ns;
    for (unsigned i = 0; i < THREADS; i++) {
        works[i] = work;
        works[i].shape += i * work.shapes;
        CHECK_EQUAL(pthread_create(&threads[i], NULL, launch_on, &works[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    uint64_t worked = now_ns() - begin, used = sim_time(&s, 0) - before;
    uint64_t most = (now_ns() - outer) / DV_PAGE_WHOLE * busy_budget.rate + work.ns + SLACK_NS;
    CHECK(used <= most);
    return used + work.ns >= worked / DV_PAGE_WHOLE * busy_budget.rate / 2;
}

/* A busy machine may keep the threads from launching for a while, but not each time. */
static void check_cap(struct work work, uint64_t ns) {
    unsigned tries = 1;
    while (!reaches_cap(work, ns)) {
        CHECK(tries++ < TRIES);
    }
}

static void unknown_kernels_keep_to_the_cap(void) {
    allow(20, DV_PAGE_BUDGET_CAPPED);
    check_cap((struct work){.shape = 10, .shapes = 1, .ns = 30 * MS}, 1000 * (uint64_t)MS);
    check_cap((struct work){.shape = 100, .shapes = 50, .ns = 5 * MS}, 1000 * (uint64_t)MS);
    check_cap((struct work){.shape = 500, .shapes = 2, .ns = 20 * MS, .destroys = true},
              1000 * (uint64_t)MS);
    /* They are known by now. */
    check_cap((struct work){.shape = 10, .shapes = 1, .ns = 30 * MS}, 1000 * (uint64_t)MS);
}

static void none_is_counted_out(void) {
    CHECK_EQUAL(busy_bucket(&s, 0).overdrawn, 0);
    CHECK_EQUAL(busy_bucket(&s, 0).turn, 0);
}

/* Without a cap nothing waits for a measurement, however many are unknown. */
static void without_a_cap_none_waits(void) {
    CUstream streams[4];
    allow(100, 0);
    busy_budget.burst = 1000 * (uint64_t)MS;
    busy_budget.correction += 1000 * (int64_t)MS;
    busy_grant(&s, 0);
    uint64_t waited = busy_bucket(&s, 0).waited;
    for (unsigned i = 0; i < 4; i++) {
        streams[i] = new_stream();
    }
    for (unsigned i = 0; i < 400; i++) {
        CHECK_EQUAL(launch_shape(streams[i % 4], 1000 + i, 100 * US), CUDA_SUCCESS);
    }
    CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQUAL(busy_bucket(&s, 0).waited, waited);
    for (unsigned i = 0; i < 4; i++) {
        CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(streams[i]), CUDA_SUCCESS);
    }
}

/* One kernel runs until another one, in another stream, has written a word. */
static void kernels_that_wait_for_each_other_end(void) {
    static const char image[] =
        ".version 7.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry divvy_await(.param .u64 p, .param .u32 v) { ret; }\n"
        ".visible .entry divvy_fill(.param .u64 p, .param .u32 v, .param .u64 n) { ret; }\n";
    CUmodule module;
    CUfunction await, fill;
    CUdeviceptr word;
    unsigned value = 7;
    uint64_t one = 1;
    void *parameters[] = {&word, &value, &one};
    CUstream first = new_stream(), second = new_stream();
    allow(10, DV_PAGE_BUDGET_CAPPED);
    CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&module, image), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuModuleGetFunction)(&await, module, "divvy_await"), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuModuleGetFunction)(&fill, module, "divvy_fill"), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&word, 4), CUDA_SUCCESS);
    uint64_t overdrawn = busy_bucket(&s, 0).overdrawn, waited = busy_bucket(&s, 0).waited;
    CHECK_EQUAL(CUDA(&s, cuLaunchKernel)(await, 1, 1, 1, 1, 1, 1, 0, first, parameters, NULL),
                CUDA_SUCCESS);
    CHECK(busy_bucket(&s, 0).turn != 0);
    CHECK_EQUAL(CUDA(&s, cuLaunchKernel)(fill, 1, 1, 1, 1, 1, 1, 0, second, parameters, NULL),
                CUDA_SUCCESS);
    busy_sync(&s, first);
    busy_sync(&s, second);
    CHECK_EQUAL(busy_bucket(&s, 0).overdrawn - overdrawn, 1);
    CHECK(busy_bucket(&s, 0).waited - waited >= DV_TIME_WAIT_NS / 2);
    CHECK_EQUAL(busy_bucket(&s, 0).turn, 0);
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(word), CUDA_SUCCESS);
}

int main(void) {
    busy_make(&s, 1);
    CHECK_EQUAL(CUDA(&s, cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    unknown_kernels_keep_to_the_cap();
    none_is_counted_out();
    without_a_cap_none_waits();
    kernels_that_wait_for_each_other_end();
    return 0;
}
