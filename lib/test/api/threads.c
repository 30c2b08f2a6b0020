/* Several threads, each with memory of its own in one context; and a child of a process that has begun. */
#include "test/api/api.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 30

static CUcontext shared;
static CUdeviceptr given;

static void *work(void *number) {
    unsigned char value = (unsigned char)((uintptr_t)number + 1), out[256];
    CUdeviceptr a = 0;
    CUstream s = NULL;
    CUcontext ctx = (CUcontext)7;
    unsigned wrong = 0;

    OK(cuCtxGetCurrent, &ctx);
    TRUE(ctx == NULL);
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2, &a, 1);
    OK(cuCtxSetCurrent, shared);
    OK(cuMemAlloc_v2, &a, 4096);
    OK(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < ROUNDS; i++) {
        wrong += CU(cuMemsetD8Async)(a, (unsigned char)(value + i), 4096, s) != CUDA_SUCCESS;
        wrong += CU(cuMemcpyDtoHAsync_v2)(out, a + 1000, 256, s) != CUDA_SUCCESS;
        wrong += CU(cuStreamSynchronize)(s) != CUDA_SUCCESS;
        for (unsigned k = 0; k < sizeof out; k++) {
            wrong += out[k] != (unsigned char)(value + i);
        }
    }
    SAME(wrong, 0);
    TRUE(api_is_filled(given + 4096 * (uintptr_t)number, 0x66, 4096));
    OK(cuMemsetD8_v2, given + 4096 * (uintptr_t)number, value, 4096);
    OK(cuMemFree_v2, a);
    OK(cuStreamDestroy_v2, s);
    OK(cuCtxPopCurrent_v2, &ctx);
    TRUE(ctx == shared);
    return NULL;
}

void api_case_threads(void) {
    pthread_t threads[THREADS];

    shared = api_begin();
    OK(cuMemAlloc_v2, &given, THREADS * 4096);
    OK(cuMemsetD8_v2, given, 0x66, THREADS * 4096);
    for (uintptr_t i = 0; i < THREADS; i++) {
        SAME(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    }
    for (uintptr_t i = 0; i < THREADS; i++) {
        SAME(pthread_join(threads[i], NULL), 0);
        TRUE(api_is_filled(given + 4096 * i, (unsigned char)(i + 1), 4096));
    }
    CUcontext ctx = NULL;
    OK(cuCtxGetCurrent, &ctx);
    TRUE(ctx == shared);
}

static int in_child(void) {
    CUdeviceptr p = 0;
    CUcontext ctx = NULL;
    CUstream s = NULL;
    CUevent e = NULL;
    int count = 0;

    ANSWERS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount, &count);
    ANSWERS(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2, &p, 1);
    ANSWERS(CUDA_ERROR_NOT_INITIALIZED, cuMemFree_v2, given);
    ANSWERS(CUDA_ERROR_NOT_INITIALIZED, cuMemsetD8_v2, given, 9, 64);
    ANSWERS(CUDA_ERROR_NOT_INITIALIZED, cuCtxSynchronize);
    ANSWERS(CUDA_ERROR_NOT_INITIALIZED, cuCtxGetCurrent, &ctx);
    ANSWERS(CUDA_ERROR_NOT_INITIALIZED, cuCtxCreate_v2, &ctx, 0, 0);
    ANSWERS(CUDA_ERROR_NOT_INITIALIZED, cuStreamCreate, &s, 0);
    ANSWERS(CUDA_ERROR_NOT_INITIALIZED, cuEventCreate, &e, 0);
    ANSWERS(CUDA_ERROR_NOT_INITIALIZED, cuInit, 0);
    return 17;
}

void api_case_forks(void) {
    api_begin();
    OK(cuMemAlloc_v2, &given, 4096);
    OK(cuMemsetD8_v2, given, 5, 4096);
    for (int i = 0; i < 3; i++) {
        SAME(api_child(in_child), 17);
        TRUE(api_is_filled(given, 5, 4096));
    }
    OK(cuCtxSynchronize);
    OK(cuMemFree_v2, given);
}
