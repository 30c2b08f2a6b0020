/* Threads are cancelled while their launches and contexts wait for GPU time. Those that come after
   them wait no longer for it than the share's budget says. */
#include "cuda/test/busy.h"

#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

#include "share/time.h"

#define PATIENCE_S 300
#define ROUNDS 20

static struct setting s;
static CUcontext context;

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

static void *launches(void *arg) {
    bool *ended = arg;
    CUstream stream;
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQUAL(busy_launch(&s, stream, MS), CUDA_SUCCESS);
    *ended = true;
    pthread_testcancel();
    CHECK(!"the thread goes on");
    return NULL;
}

int main(void) {
    alarm(PATIENCE_S);
    busy_make(&s, 1);
    CHECK_EQUAL(CUDA(&s, cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    for (int i = 0; i < 10; i++) { /* until its cost is known */
        CHECK_EQUAL(busy_launch(&s, NULL, MS), CUDA_SUCCESS);
        busy_sync(&s, NULL);
    }
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        void *result;
        bool ended = false;
        into_debt();
        uint64_t wanted = busy_bucket(&s, 0).wanted;
        CHECK(pthread_create(&thread, NULL, launches, &ended) == 0);
        while (busy_bucket(&s, 0).wanted == wanted) {
            sched_yield();
        }
        CHECK(pthread_cancel(thread) == 0);
        usleep(5000); /* enough for a thread that heeds it while it waits */
        out_of_debt();
        CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
        CHECK(ended); /* its call was answered */
        CHECK_EQUAL(busy_launch(&s, NULL, MS), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
    }
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    return 0;
}
