/* A worker that cannot go on, as its GPU has enough to do, holds up the program, although the socket has room for much more. */
#include "remote/client/test/setting.h"

#include "remote/call.h"

#include <pthread.h>

static uint32_t held; /* the worker answers nothing */
static unsigned long given;
static uint64_t current; /* the context, without which every call waits */

static void answer(struct remote_link *link, const struct remote_head *head,
                   const uint64_t *words) {
    (void)words;
    if (head->posted) {
        return;
    }
    UNTIL(!__atomic_load_n(&held, __ATOMIC_ACQUIRE));
    setting_answer(link, head, 0, 0, 5);
}

#define LAUNCHES 20000ul

static void *launch(void *none) {
    CHECK_EQUAL(cuCtxSetCurrent((CUcontext)current), 0);
    for (unsigned long i = 0; i < LAUNCHES; i++) {
        struct remote_call call;

        remote_begin(&call, REMOTE_cuLaunchKernel, 0);
        remote_post(&call);
        __atomic_add_fetch(&given, 1, __ATOMIC_RELEASE);
    }
    return none;
}

static unsigned long calls(void) {
    return __atomic_load_n(&given, __ATOMIC_ACQUIRE);
}

static void test(enum remote_link_kind kind) {
    pthread_t program;
    uint64_t value;

    setting_start(kind, answer);
    CHECK_EQUAL(cuInit(0), 0);
    current = remote_number_new(REMOTE_KIND_CUcontext);
    CHECK(current);
    __atomic_store_n(&held, 1, __ATOMIC_RELEASE);
    CHECK_EQUAL(pthread_create(&program, NULL, launch, NULL), 0);
    UNTIL(calls() >= 1000);
    /* The worker takes what is posted also while it is held, so rings are not full. */
    if (kind == REMOTE_LINK_STREAM) {
        UNTIL(setting_records() >= 1025);
        for (unsigned i = 0; i < 100; i++) {
            setting_moment();
            CHECK(calls() <= 1024);
        }
    }
    __atomic_store_n(&held, 0, __ATOMIC_RELEASE);
    CHECK_EQUAL(pthread_join(program, NULL), 0);
    CHECK_EQUAL(calls(), LAUNCHES);
    /* Who waits anyway is not held up by what was given before. */
    CHECK_EQUAL(setting_ask(REMOTE_cuEventQuery, 0, &value), 0);
}

int main(void) {
    return setting_run(test);
}
