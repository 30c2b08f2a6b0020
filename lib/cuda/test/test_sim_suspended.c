/* What waits for the budget of a share, or for its turn, tells so while the share is suspended, and
 * before the driver, which would block it, is asked anything: so the agent learns that the program goes
 * on. The orders and the lock of a checkpoint are the test's. */
#include "cuda/test/orders.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "share/state.h"
#include "share/time.h"

#define GPUS 2
#define PATIENCE_S 300 /* without what is tested nothing is told for ever */
#define KERNEL_NS (300 * (uint64_t)US)
#define AWAY_NS (100 * (uint64_t)MS)

static struct setting s;
static CUcontext context;
static CUstream stream;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void into_debt(unsigned gpu) {
    busy_budget.rate = busy_budget.base = 1; /* of a million: so none goes on debt */
    busy_budget.correction -= (int64_t)DV_TIME_DEBT_NS / 2;
    busy_grant(&s, gpu);
}

static void out_of_debt(unsigned gpu) {
    busy_budget.correction += (int64_t)DV_TIME_DEBT_NS / 2;
    busy_budget.rate = busy_budget.base = DV_PAGE_WHOLE;
    busy_grant(&s, gpu);
}

/* As a helper does that takes a checkpoint: calls that begin wait in the driver. */
static void lock(void) {
    __extension__ __typeof__(&cuCheckpointProcessLock) real =
        (__typeof__(&cuCheckpointProcessLock))setting_real(&s, "cuCheckpointProcessLock");
    CHECK_EQUAL(real(getpid(), NULL), CUDA_SUCCESS);
}
static void unlock(void) {
    __extension__ __typeof__(&cuCheckpointProcessUnlock) real =
        (__typeof__(&cuCheckpointProcessUnlock))setting_real(&s, "cuCheckpointProcessUnlock");
    CHECK_EQUAL(real(getpid(), NULL), CUDA_SUCCESS);
}

static void *launch(void *arg) {
    (void)arg;
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CHECK_EQUAL(busy_launch(&s, stream, KERNEL_NS), CUDA_SUCCESS);
    return NULL;
}

static void *make_context(void *arg) {
    CUcontext made;
    (void)arg;
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&made, 0, 1), CUDA_SUCCESS);
    return NULL;
}

static void await_wanted(unsigned gpu) {
    uint64_t wanted = load64(&s.share->gpu[gpu].bucket.wanted);
    while (load64(&s.share->gpu[gpu].bucket.wanted) == wanted) {
        sched_yield();
    }
}

/* It waits for the budget, the share is suspended and comes back, and it waits for the budget again.
 * The time in between is none for which its budget held it back. */
static void what_waits_for_the_budget_tells(unsigned gpu, void *(*work)(void *)) {
    pthread_t thread;
    into_debt(gpu);
    uint64_t began = now_ns(), held = orders_residence(&s, 0).held;
    uint64_t back = load64(&s.share->gpu[gpu].bucket.held_back);
    CHECK_EQUAL(pthread_create(&thread, NULL, work, NULL), 0);
    await_wanted(gpu);
    orders_give(DV_PAGE_TURN_SUSPENDED, 0, 0);
    orders_await_waiting(&s);
    lock();
    orders_await_held(&s, AWAY_NS);
    CHECK(orders_present(&s, 0).waits != 0);
    unlock();
    orders_give(DV_PAGE_TURN_OPEN, 0, 0);
    await_wanted(gpu);
    CHECK_EQUAL(orders_present(&s, 0).waits, 0);
    out_of_debt(gpu);
    pthread_join(thread, NULL);
    held = orders_residence(&s, 0).held - held;
    back = load64(&s.share->gpu[gpu].bucket.held_back) - back;
    CHECK(held >= AWAY_NS && back > 0 && held + back <= now_ns() - began);
}

static uint32_t ready, goes; /* atomic */

/* Leaves a batch of launches open, whose end is recorded when a launch waits. */
static void *launch_again(void *arg) {
    (void)arg;
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(context), CUDA_SUCCESS);
    for (int i = 0; i < 7; i++) {
        CHECK_EQUAL(busy_launch(&s, stream, KERNEL_NS), CUDA_SUCCESS);
    }
    __atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&goes, __ATOMIC_ACQUIRE) == 0) {
        usleep(500);
    }
    CHECK_EQUAL(busy_launch(&s, stream, KERNEL_NS), CUDA_SUCCESS);
    return NULL;
}

/* The gate closes just after a launch has looked whether the share is suspended. */
static void what_waits_at_the_gate_tells_first(void) {
    pthread_t thread;
    CHECK_EQUAL(pthread_create(&thread, NULL, launch_again, NULL), 0);
    while (__atomic_load_n(&ready, __ATOMIC_ACQUIRE) == 0) {
        usleep(500);
    }
    lock();
    orders_give(DV_PAGE_TURN_AWAY, 0, 0);
    __atomic_store_n(&goes, 1, __ATOMIC_RELEASE);
    orders_await_waiting(&s);
    unlock();
    orders_give(DV_PAGE_TURN_OPEN, 0, 0);
    pthread_join(thread, NULL);
    CHECK_EQUAL(orders_present(&s, 0).waits, 0);
}

int main(void) {
    alarm(PATIENCE_S);
    sim_cuda_version = 12080; /* the first with checkpoints */
    orders_make_ordinary(&s, GPUS, (uint64_t)1 << 30);
    busy_budget.flags |= DV_PAGE_BUDGET_TURNS;
    for (unsigned i = 0; i < GPUS; i++) {
        busy_grant(&s, i);
    }
    setting_open(&s);
    context = setting_context(&s);
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    for (int i = 0; i < 10; i++) { /* until its cost is known */
        CHECK_EQUAL(busy_launch(&s, stream, KERNEL_NS), CUDA_SUCCESS);
        busy_sync(&s, stream);
    }
    what_waits_for_the_budget_tells(0, launch);
    what_waits_for_the_budget_tells(1, make_context);
    what_waits_at_the_gate_tells_first();
    return 0;
}
