/* A function that a stream calls may call no CUDA, which a hostile one does all the same: what it
 * allocates is charged or refused as from any other thread. */
#include "cuda/test/sim.h"

#define LIMIT (256 * MIB)
#define ROUNDS 20

static struct setting s;
static CUcontext context;
static CUstream stream;

/* What a function that a stream called was answered. */
static struct got {
    CUdeviceptr linear, pitched, pooled, rest;
    size_t pitch;
    CUresult answers[3], over;
    unsigned calls;
} got;

static void take(void *arg) {
    struct got *g = arg;
    CUDA(&s, cuCtxSetCurrent)(context);
    g->answers[0] = CUDA(&s, cuMemAlloc_v2)(&g->linear, 8 * MIB);
    g->answers[1] = CUDA(&s, cuMemAllocPitch_v2)(&g->pitched, &g->pitch, 512, 8192, 4);
    g->answers[2] = CUDA(&s, cuMemAllocAsync)(&g->pooled, 8 * MIB, stream);
    g->over = CUDA(&s, cuMemAlloc_v2)(&g->rest, LIMIT);
    __atomic_add_fetch(&g->calls, 1, __ATOMIC_RELEASE);
}

static void called_back(CUstream in, CUresult result, void *arg) {
    (void)in;
    (void)result;
    take(arg);
}

static void give(const struct got *g) {
    CUDA(&s, cuMemFree_v2)(g->linear);
    CUDA(&s, cuMemFree_v2)(g->pitched);
    CUDA(&s, cuMemFreeAsync)(g->pooled, stream);
}

/* Waits until the stream has called, in a way that itself is a call of the driver. */
static void await(unsigned calls) {
    CHECK_EQUAL(CUDA(&s, cuStreamSynchronize)(stream), CUDA_SUCCESS);
    CHECK_EQUAL(__atomic_load_n(&got.calls, __ATOMIC_ACQUIRE), calls);
}

static void what_a_stream_calls_is_charged(bool with_status) {
    uint64_t before = setting_used(&s);
    for (unsigned round = 0; round < ROUNDS; round++) {
        got = (struct got){0};
        CHECK_EQUAL(with_status ? CUDA(&s, cuStreamAddCallback)(stream, called_back, &got, 0)
                                : CUDA(&s, cuLaunchHostFunc)(stream, take, &got),
                    CUDA_SUCCESS);
        await(1);
        for (unsigned i = 0; i < 3; i++) {
            CHECK_EQUAL(got.answers[i], CUDA_SUCCESS);
        }
        CHECK_EQUAL(got.over, CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(sim_used(&s, 0) >= before + 20 * MIB);
        CHECK_TRUE_ACCOUNT(&s);
        give(&got);
        CHECK_EQUAL(CUDA(&s, cuStreamSynchronize)(stream), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(&s, cuStreamSynchronize)(stream), CUDA_SUCCESS);
        CHECK_TRUE_ACCOUNT(&s);
    }
}

/* Function after function takes until nothing is left: never more than the share. */
static unsigned taken;

static void take_some(void *arg) {
    (void)arg;
    CUdeviceptr address;
    CUDA(&s, cuCtxSetCurrent)(context);
    if (CUDA(&s, cuMemAlloc_v2)(&address, 16 * MIB) == CUDA_SUCCESS) {
        __atomic_add_fetch(&taken, 1, __ATOMIC_RELAXED);
    }
}

static void streams_take_no_more_than_the_share(void) {
    CUstream streams[4];
    for (unsigned i = 0; i < 4; i++) {
        CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&streams[i], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    }
    for (unsigned i = 0; i < 64; i++) {
        CHECK_EQUAL(CUDA(&s, cuLaunchHostFunc)(streams[i % 4], take_some, NULL), CUDA_SUCCESS);
    }
    for (unsigned i = 0; i < 4; i++) {
        CHECK_EQUAL(CUDA(&s, cuStreamSynchronize)(streams[i]), CUDA_SUCCESS);
    }
    unsigned all = __atomic_load_n(&taken, __ATOMIC_RELAXED);
    CHECK(all > 0 && all * 16 * MIB < LIMIT);
    CHECK_TRUE_ACCOUNT(&s);
    CHECK(sim_peak(&s, 0) <= LIMIT);
}

int main(void) {
    sim_make(&s, 1, LIMIT);
    context = setting_context(&s);
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    what_a_stream_calls_is_charged(false);
    what_a_stream_calls_is_charged(true);
    streams_take_no_more_than_the_share();
    return 0;
}
