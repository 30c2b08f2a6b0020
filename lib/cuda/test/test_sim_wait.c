/* While a launch waits, other threads end its stream or capture it. */
#include "cuda/test/busy.h"

#include <pthread.h>
#include <stddef.h>

#include "share/time.h"

#define FILLED ((size_t)256 << 20) /* takes so long that the budget is looked at */

static struct setting s;
static CUcontext context;
static CUdeviceptr memory;

static void into_debt(void) {
    busy_budget.rate = busy_budget.base = 0;
    busy_budget.correction -= 2 * (int64_t)DV_TIME_DEBT_NS;
    busy_grant(&s, 0);
}

static void out_of_debt(void) {
    busy_budget.correction += 2 * (int64_t)DV_TIME_DEBT_NS;
    busy_budget.rate = busy_budget.base = DV_PAGE_WHOLE;
    busy_grant(&s, 0);
}

static CUstream make(void) {
    CUstream stream;
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
}

/* What a thread gives to a stream, and what it was answered. */
struct attempt {
    CUresult (*give)(CUstream);
    CUstream stream;
    CUresult answer;
};

static CUresult give_kernel(CUstream stream) {
    return busy_launch(&s, stream, MS);
}

static CUresult give_memset(CUstream stream) {
    return CUDA(&s, cuMemsetD8Async)(memory, 1, FILLED, stream);
}

static void *run(void *arg) {
    struct attempt *attempt = arg;
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(context), CUDA_SUCCESS);
    attempt->answer = attempt->give(attempt->stream);
    return NULL;
}

/* Returns once the attempt waits. */
static pthread_t begin(struct attempt *attempt) {
    pthread_t thread;
    uint64_t wanted = busy_bucket(&s, 0).wanted;
    CHECK_EQUAL(pthread_create(&thread, NULL, run, attempt), 0);
    while (busy_bucket(&s, 0).wanted == wanted) {
        sched_yield();
    }
    return thread;
}

static void end(pthread_t thread) {
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
}

/* simgpu ends a program that hands over a dead handle. */
static void a_destroyed_stream_is_not_used(CUresult (*give)(CUstream)) {
    into_debt();
    uint64_t launches = busy_bucket(&s, 0).launches;
    struct attempt attempt = {.give = give, .stream = make()};
    pthread_t thread = begin(&attempt);
    CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(attempt.stream), CUDA_SUCCESS);
    end(thread);
    CHECK_EQUAL(attempt.answer, CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(busy_bucket(&s, 0).launches, launches);
    out_of_debt();
}

static CUfunction passing; /* of a module that goes */

static CUresult give_passing(CUstream stream) {
    uint64_t ns = MS;
    void *parameters[] = {&ns};
    return CUDA(&s, cuLaunchKernel)(passing, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

/* The same for a kernel. */
static void an_unloaded_kernel_is_not_used(void) {
    CUmodule module, again;
    struct attempt attempt = {.give = give_passing, .stream = make()};
    CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&module, busy_image), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuModuleGetFunction)(&passing, module, "divvy_busy_ns"), CUDA_SUCCESS);
    CHECK_EQUAL(give_passing(attempt.stream), CUDA_SUCCESS);
    busy_sync(&s, attempt.stream);
    into_debt();
    pthread_t thread = begin(&attempt);
    CHECK_EQUAL(CUDA(&s, cuModuleUnload)(module), CUDA_SUCCESS);
    end(thread);
    CHECK_EQUAL(attempt.answer, CUDA_ERROR_INVALID_HANDLE);
    out_of_debt();
    CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&again, busy_image), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuModuleGetFunction)(&passing, again, "divvy_busy_ns"), CUDA_SUCCESS);
    into_debt();
    attempt.stream = make();
    thread = begin(&attempt);
    out_of_debt();
    end(thread);
    CHECK_EQUAL(attempt.answer, CUDA_SUCCESS);
    busy_sync(&s, attempt.stream);
    CHECK_EQUAL(CUDA(&s, cuModuleUnload)(again), CUDA_SUCCESS);
}

/* The launch becomes a node of the capture, and no event of ours does. */
static void a_captured_launch_does_not_wait(CUstreamCaptureMode mode) {
    CUgraph graph;
    size_t nodes = 0;
    into_debt();
    uint64_t launches = busy_bucket(&s, 0).launches;
    struct attempt attempt = {.give = give_kernel, .stream = make()};
    pthread_t thread = begin(&attempt);
    CHECK_EQUAL(CUDA(&s, cuStreamBeginCapture_v2)(attempt.stream, mode), CUDA_SUCCESS);
    end(thread);
    CHECK_EQUAL(attempt.answer, CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamEndCapture)(attempt.stream, &graph), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphGetNodes)(graph, NULL, &nodes), CUDA_SUCCESS);
    CHECK_EQUAL(nodes, 1);
    CHECK_EQUAL(busy_bucket(&s, 0).launches, launches);
    CHECK_EQUAL(CUDA(&s, cuGraphDestroy)(graph), CUDA_SUCCESS);
    out_of_debt();
    CHECK_EQUAL(busy_launch(&s, attempt.stream, MS), CUDA_SUCCESS);
    busy_sync(&s, attempt.stream);
    CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(attempt.stream), CUDA_SUCCESS);
}

static void a_destroyed_context_is_not_used(struct attempt attempt, CUresult answer) {
    into_debt();
    pthread_t thread = begin(&attempt);
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    end(thread);
    CHECK_EQUAL(attempt.answer, answer);
    out_of_debt();
}

int main(void) {
    busy_make(&s, 1);
    CHECK_EQUAL(CUDA(&s, cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&memory, FILLED), CUDA_SUCCESS);
    CUstream stream = make();
    for (int i = 0; i < 10; i++) { /* until its cost is known */
        CHECK_EQUAL(busy_launch(&s, stream, MS), CUDA_SUCCESS);
        busy_sync(&s, stream);
    }
    a_destroyed_stream_is_not_used(give_kernel);
    a_destroyed_stream_is_not_used(give_memset);
    an_unloaded_kernel_is_not_used();
    a_captured_launch_does_not_wait(CU_STREAM_CAPTURE_MODE_GLOBAL);
    a_captured_launch_does_not_wait(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    a_captured_launch_does_not_wait(CU_STREAM_CAPTURE_MODE_RELAXED);
    a_destroyed_context_is_not_used((struct attempt){.give = give_kernel, .stream = make()},
                                    CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&memory, FILLED), CUDA_SUCCESS);
    a_destroyed_context_is_not_used((struct attempt){.give = give_memset, .stream = NULL},
                                    CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return 0;
}
