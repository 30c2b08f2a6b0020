/* Records of events on simgpu: what the GPU takes for them is charged and told, whoever makes nothing else does not get it for
 * nothing, and who measures launches with them is not held up by them. */
#include "cuda/test/busy.h"

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#define COUNT 20000u
#define ROUNDS 1000u
#define RECORD_NS 500u /* of the simulated machine */
#define UNLEARNED_NS 1000u

static struct setting s;
static CUstream stream;
static CUevent event;

static void begin(void) {
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
}

static void end(void) {
    CHECK_EQUAL(CUDA(&s, cuEventDestroy_v2)(event), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
}

static void record(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        CHECK_EQUAL(CUDA(&s, cuEventRecord)(event, stream), CUDA_SUCCESS);
    }
}

static uint64_t now(void) {
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* What records cost by the oracle and by the library, and the time that passed. */
struct cost {
    uint64_t took, charged, passed;
};

static struct cost records_cost(void) {
    uint64_t before = sim_time(&s, 0);
    uint64_t charged = busy_bucket(&s, 0).charged;
    uint64_t begun = now();

    begin();
    record(COUNT);
    busy_sync(&s, stream);
    end();
    charged = busy_bucket(&s, 0).charged - charged;
    uint64_t took = sim_time(&s, 0) - before;
    return (struct cost){took, charged, now() - begun};
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* The GPU waits for each record, so what they are charged is the time that passed. */
static const bool slow = true;
#else
static const bool slow = false;
#endif

/* Within a quarter of what the GPU truly took, our own events beside them. Where other programs make this one so slow that the GPU
 * waits for it, it seems to take as long as it waits, and the records after that are charged by it: not each time are they in the
 * way. */
static void records_are_charged(void) {
    bool fair = false;

    for (unsigned i = 0; i < 8 && !fair; i++) {
        struct cost c = records_cost();

        CHECK(c.took >= (uint64_t)COUNT * RECORD_NS);
        fair = slow ? c.charged <= c.passed
                    : c.charged > c.took - c.took / 4 && c.charged < c.took + c.took / 4;
    }
    CHECK(fair);
}

/* Records of all that a context has are charged as others, in whatever context the thread is, and never measured: each for what the
 * library takes a record for before it has measured any. */
static void records_of_contexts_are_charged(void) {
    CUcontext context, other;

    begin();
    CHECK_EQUAL(CUDA(&s, cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        uint64_t before = sim_time(&s, 0);
        uint64_t charged = busy_bucket(&s, 0).charged;

        for (unsigned k = 0; k < COUNT; k++) {
            CHECK_EQUAL(CUDA(&s, cuCtxRecordEvent)(context, event), CUDA_SUCCESS);
        }
        CHECK_EQUAL(CUDA(&s, cuEventSynchronize)(event), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
        charged = busy_bucket(&s, 0).charged - charged;
        uint64_t took = sim_time(&s, 0) - before;
        CHECK(took >= (uint64_t)COUNT * RECORD_NS);
        CHECK(charged >= (uint64_t)COUNT * RECORD_NS);
        CHECK(charged <= (uint64_t)COUNT * UNLEARNED_NS * 11 / 10);
        if (i == 0) {
            CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&other, 0, 0), CUDA_SUCCESS);
        }
    }
    /* What a stream has comes before the event, also one that waits for no other. */
    CHECK_EQUAL(busy_launch(&s, stream, 20 * MS), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxRecordEvent)(context, event), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuEventSynchronize)(event), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamQuery)(stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    CHECK(context == other);
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(other), CUDA_SUCCESS);
    end();
}

/* With a hundredth of the GPU a loop of records waits once it has taken more than it may. */
static void records_wait_in_the_end(void) {
    begin();
    busy_budget.rate = busy_budget.base = DV_PAGE_WHOLE / 100;
    busy_budget.burst = MS;
    busy_grant(&s, 0);
    uint64_t waited = busy_bucket(&s, 0).waited;
    /* A program that is kept from its processor gets budget meanwhile. */
    for (unsigned i = 0; busy_bucket(&s, 0).waited == waited && i < ROUNDS; i++) {
        record(COUNT / 10);
    }
    CHECK(busy_bucket(&s, 0).waited > waited);
    busy_sync(&s, stream);
    end();
    CHECK(busy_bucket(&s, 0).balance > -5 * (int64_t)MS);
}

/* A launch leaves the share in debt; the event behind it, which measures it, is recorded all the same. A program that is kept from its
 * processor between the two gets budget meanwhile. */
static void records_measure(void) {
    bool indebted = false;

    begin();
    for (unsigned i = 0; i < 8 && !indebted; i++) {
        CHECK_EQUAL(busy_launch(&s, stream, 2 * MS), CUDA_SUCCESS);
        uint64_t waited = busy_bucket(&s, 0).waited;
        record(8);
        CHECK_EQUAL(busy_bucket(&s, 0).waited, waited);
        indebted = busy_bucket(&s, 0).balance < 0;
        busy_sync(&s, stream);
    }
    CHECK(indebted);
    end();
}

int main(void) {
    busy_make(&s, 1);
    records_of_contexts_are_charged();
    records_are_charged();
    records_wait_in_the_end();
    records_measure();
    return 0;
}
