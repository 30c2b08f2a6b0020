/* Threads of one process that allocate, copy, launch and wait at once. */
#define _GNU_SOURCE
#include "simgpu/cuda/test/cuda.h"

#include <pthread.h>
#include <stdlib.h>

#define THREADS 6
#define ROUNDS 400

static CUcontext shared_ctx;
static CUfunction busy;
static int calls;

static void count_call(void *unused) {
    (void)unused;
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
}

static void one_round(CUstream s, CUevent e, uint32_t value, unsigned *seed) {
    uint32_t back = 0, words = 1 + (uint32_t)rand_r(seed) % 60000;
    uint64_t ns = (uint64_t)rand_r(seed) % 3000;
    void *params[] = {&ns};
    CUdeviceptr a, b;

    OK(cuMemAlloc_v2(&a, words * 4ull));
    OK(cuMemAllocAsync(&b, words * 4ull, s));
    OK(cuMemsetD32Async(a, value, words, s));
    OK(cuLaunchKernel(busy, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
    if (value % 16 == 0) {
        OK(cuLaunchHostFunc(s, count_call, NULL));
    }
    OK(cuMemcpyDtoDAsync_v2(b, a, words * 4ull, s));
    OK(cuEventRecord(e, s));
    OK(cuMemcpyDtoHAsync_v2(&back, b + (words - 1) * 4ull, 4, s));
    OK(cuMemFreeAsync(b, s));
    if (value % 2) {
        OK(cuStreamSynchronize(s));
    } else {
        OK(cuEventSynchronize(e));
    }
    if (value % 2) {
        CHECK_EQUAL(back, value);
    }
    OK(cuStreamSynchronize(s));
    OK(cuMemFree_v2(a));
}

static void *work(void *number) {
    unsigned seed = (unsigned)(uintptr_t)number;
    CUstream s;
    CUevent e;

    OK(cuCtxSetCurrent(shared_ctx));
    OK(cuStreamCreate(&s, seed % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    OK(cuEventCreate(&e, 0));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        one_round(s, e, i, &seed);
    }
    OK(cuEventDestroy_v2(e));
    OK(cuStreamDestroy_v2(s));
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];

    shared_ctx = cuda_start(NULL);
    busy = cuda_kernel("divvy_busy_ns");
    for (uintptr_t i = 0; i < THREADS; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK_EQUAL(calls, THREADS * ROUNDS / 16);
    OK(cuCtxSynchronize());
    CHECK_EQUAL(cuda_true_all(), 4 * MIB);
    return 0;
}
