/* A thread that is cancelled inside a call of ours ends when the call is over, and keeps nothing
   that others wait for. */
#define _GNU_SOURCE
#include "cuda/test/setting.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 300

static struct setting s;
static bool inside, go_on;

/* The driver waits at a cancellation point of the C library. */
static void waits(void) {
    const struct timespec moment = {.tv_nsec = 1000000};
    __atomic_store_n(&inside, true, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&go_on, __ATOMIC_ACQUIRE)) {
        nanosleep(&moment, NULL);
    }
}

static void *retains(void *arg) {
    CUcontext context;
    (void)arg;
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    pthread_testcancel();
    CHECK(!"the thread goes on");
    return NULL;
}

static void *may_be_cancelled(void *arg) {
    int state = -1;
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0);
    CHECK_EQUAL(state, arg == NULL ? PTHREAD_CANCEL_ENABLE : PTHREAD_CANCEL_DISABLE);
    return NULL;
}

int main(void) {
    pthread_t thread;
    void *result;
    CUcontext context;
    alarm(PATIENCE_S);
    setting_make(&s, 1, 64 * MIB, NULL);
    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    s.driver->during_context = waits;
    CHECK(pthread_create(&thread, NULL, retains, NULL) == 0);
    while (!__atomic_load_n(&inside, __ATOMIC_ACQUIRE)) {
        sched_yield();
    }
    CHECK(pthread_cancel(thread) == 0);
    const struct timespec moment = {.tv_nsec = 50000000};
    nanosleep(&moment, NULL); /* enough for a thread that heeds it */
    __atomic_store_n(&go_on, true, __ATOMIC_RELEASE);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    CHECK_EQUAL(s.driver->contexts, 2);

    /* What the thread had chosen before stays. */
    CHECK(pthread_create(&thread, NULL, may_be_cancelled, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
    may_be_cancelled(&s);
    return 0;
}
