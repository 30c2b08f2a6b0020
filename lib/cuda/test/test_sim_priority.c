/* Of launches that wait at the same time, those of a higher stream priority go first, and one of a
 * lower priority goes in the end. */
#include "cuda/test/program.h"

#include <pthread.h>
#include <sched.h>

#define HIGHEST 5
#define EACH 2 /* launches of each priority */
#define COUNT ((HIGHEST + 1) * EACH)
#define KERNEL_NS (2 * MS)
#define WARM 12  /* launches after which the cost is learned */
#define MANY 750 /* launches, three times those of the longest wait */
#define TRIES 12 /* of the order */

static CUcontext context;
static CUfunction kernel;
static CUstream streams[COUNT];

static void *launch(void *stream) {
    DO(cuCtxSetCurrent, context);
    program_launch(kernel, stream, KERNEL_NS);
    return NULL;
}

static void grant(uint32_t rate) {
    busy_budget.rate = busy_budget.base = rate;
    busy_budget.burst = MS / 10;
    busy_grant(&program, 0);
}

/* In the order of its streams; the lowest priority comes first and so waits longest. */
static int priority_of(unsigned number) {
    return -(int)(number / EACH);
}

static int priority_of_stream(CUstream stream) {
    unsigned i = 0;
    while (i < COUNT && streams[i] != stream) {
        i++;
    }
    CHECK(i < COUNT);
    return priority_of(i);
}

/* Whether the driver got the launches from number `from` on in the order of their priorities. */
static bool in_order(unsigned from) {
    CUstream order[WARM + TRIES * (1 + COUNT)];
    CHECK_EQUAL(program_order(order, WARM + TRIES * (1 + COUNT)), from + COUNT);
    for (unsigned i = from + 1; i < from + COUNT; i++) {
        if (priority_of_stream(order[i - 1]) > priority_of_stream(order[i])) {
            return false;
        }
    }
    return true;
}

/* Launches into all streams while nothing may go, and then lets them go. */
static bool go_in_order(void) {
    pthread_t threads[COUNT];
    /* Leaves a debt, and nothing is gained any more. */
    grant(DV_PAGE_WHOLE / 100);
    program_launch(kernel, streams[0], KERNEL_NS);
    grant(0);
    unsigned from = program_order(NULL, 0);
    unsigned asked = program_inserted("cuStreamGetPriority");
    for (unsigned i = 0; i < COUNT; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, launch, streams[i]), 0);
        while (program_inserted("cuStreamGetPriority") <= asked + i) {
            sched_yield();
        }
    }
    grant(DV_PAGE_WHOLE / 10);
    for (unsigned i = 0; i < COUNT; i++) {
        pthread_join(threads[i], NULL);
    }
    return in_order(from);
}

/* A thread that gets no processor for 20 ms holds up no launch of a lower priority any more, so the
 * order is that of the priorities in one of several tries. Of launches in any order it would be in
 * one of millions. */
static void check_order(void) {
    unsigned tries = 0;
    while (!go_in_order()) {
        CHECK(++tries < TRIES);
    }
}

static bool low_went;

static void *launch_low(void *stream) {
    launch(stream);
    __atomic_store_n(&low_went, true, __ATOMIC_RELAXED);
    return NULL;
}

/* Launches of a higher priority that do not end hold up one of a lower for a while only: they may
 * wait for what it does. */
static void check_not_starved(void) {
    pthread_t low;
    grant(DV_PAGE_WHOLE / 10);
    CHECK_EQUAL(pthread_create(&low, NULL, launch_low, streams[0]), 0);
    for (unsigned i = 0; !__atomic_load_n(&low_went, __ATOMIC_RELAXED); i++) {
        CHECK(i < MANY);
        launch(streams[COUNT - 1]);
    }
    pthread_join(low, NULL);
}

int main(void) {
    program_make(WATCH);
    DO(cuCtxGetCurrent, &context);
    kernel = program_kernel();
    for (unsigned i = 0; i < COUNT; i++) {
        DO(cuStreamCreateWithPriority, &streams[i], CU_STREAM_NON_BLOCKING, priority_of(i));
    }
    grant(DV_PAGE_WHOLE);
    for (unsigned i = 0; i < WARM; i++) {
        program_launch(kernel, streams[0], KERNEL_NS);
        IN(streams[0], cuStreamSynchronize, streams[0]);
    }
    check_order();
    check_not_starved();
    CHECK_EQUAL(program_wrong(), 0);
    return 0;
}
