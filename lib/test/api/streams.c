/* Streams and events: what they tell, and in which order work is done. */
#include "test/api/api.h"

#include <pthread.h>

void api_case_streams(void) {
    static const unsigned kinds[] = {CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING};
    int least = 0, greatest = 0, priority = 77;
    unsigned flags = 77;
    unsigned long long id = 0, other = 0;
    CUcontext ctx = api_begin(), of = NULL;
    CUstream s = NULL, t = NULL;
    CUdevice device = 77;

    OK(cuCtxGetStreamPriorityRange, &least, &greatest);
    for (size_t i = 0; i < COUNT(kinds); i++) {
        OK(cuStreamCreate, &s, kinds[i]);
        OK(cuStreamGetFlags, s, &flags);
        SAME(flags, kinds[i]);
        OK(cuStreamGetPriority, s, &priority);
        SAME(priority, 0);
        OK(cuStreamGetCtx, s, &of);
        TRUE(of == ctx);
        OK(cuStreamGetId, s, &id);
        OK(cuStreamCreate, &t, kinds[i]);
        OK(cuStreamGetId, t, &other);
        TRUE(id != other);
        OK(cuStreamQuery, s);
        OK(cuStreamSynchronize, s);
        OK(cuStreamCopyAttributes, s, t);
        OK(cuStreamDestroy_v2, t);
        OK(cuStreamDestroy_v2, s);
    }
    for (int wish = greatest - 2; wish <= least + 2; wish++) {
        OK(cuStreamCreateWithPriority, &s, CU_STREAM_NON_BLOCKING, wish);
        OK(cuStreamGetPriority, s, &priority);
        SAME(priority, wish < greatest ? greatest : wish > least ? least : wish);
        OK(cuStreamDestroy_v2, s);
    }
    INVALID(cuStreamCreate, &s, 64);
    INVALID(cuStreamCreate, NULL, 0);
    OK(cuStreamCreate, &s, 0);
    INVALID(cuStreamGetFlags, s, NULL);
    INVALID(cuStreamGetPriority, s, NULL);
    INVALID(cuStreamGetId, s, NULL);
    INVALID(cuStreamGetCtx, s, NULL);
    OK(cuStreamGetFlags, NULL, &flags);
    SAME(flags, 0);
    (void)device;
    OK(cuStreamDestroy_v2, s);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize, s);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2, s);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2, CU_STREAM_LEGACY);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2, CU_STREAM_PER_THREAD);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery, s);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuStreamGetFlags, s, &flags);
}

/* A word that the stream waits for keeps it busy until another stream writes it. */
void api_case_order(void) {
    CUstream s = NULL, t = NULL;
    CUevent e = NULL;
    CUdeviceptr a = 0;
    uint32_t seen = 77;

    api_begin();
    api_function("none");
    OK(cuMemAlloc_v2, &a, 64);
    OK(cuMemsetD8_v2, a, 0, 64);
    OK(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    OK(cuStreamCreate, &t, CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate, &e, CU_EVENT_DISABLE_TIMING);
    OK(cuCtxSynchronize);
    for (uint32_t round = 1; round <= 4; round++) {
        OK(cuStreamWaitValue32, s, a, round, CU_STREAM_WAIT_VALUE_GEQ);
        OK(cuMemsetD32Async, a + 4, round, 1, s);
        OK(cuEventRecord, e, s);
        OK(cuStreamWaitEvent, t, e, 0);
        OK(cuMemcpyDtoDAsync_v2, a + 8, a + 4, 4, t);
        ANSWERS(CUDA_ERROR_NOT_READY, cuStreamQuery, s);
        ANSWERS(CUDA_ERROR_NOT_READY, cuStreamQuery, t);
        ANSWERS(CUDA_ERROR_NOT_READY, cuEventQuery, e);
        OK(cuStreamQuery, NULL);
        OK(cuMemcpyDtoH_v2, &seen, a + 4, 4);
        SAME(seen, round - 1);
        OK(cuStreamWriteValue32, NULL, a, round, 0);
        OK(cuStreamSynchronize, t);
        OK(cuMemcpyDtoH_v2, &seen, a + 8, 4);
        SAME(seen, round);
        OK(cuEventQuery, e);
        OK(cuStreamQuery, s);
    }
    /* The default stream waits for blocking ones, and they for it. */
    CUstream blocking = NULL;
    OK(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
    for (uint32_t round = 0; round < 8; round++) {
        OK(cuMemsetD32Async, a, 100 + round, 1, blocking);
        OK(cuMemcpyDtoDAsync_v2, a + 4, a, 4, NULL);
        OK(cuMemcpyDtoDAsync_v2, a + 8, a + 4, 4, blocking);
        OK(cuStreamSynchronize, blocking);
        SAME(api_word(a + 8), 100 + round);
    }
}

static void *own_stream(void *ctx) {
    unsigned long long id = 0;

    OK(cuCtxSetCurrent, (CUcontext)ctx);
    OK(cuStreamGetId, CU_STREAM_PER_THREAD, &id);
    return (void *)(uintptr_t)id;
}

void api_case_defaults(void) {
    CUcontext ctx = api_begin();
    unsigned long long legacy = 0, mine = 0, same = 0;
    pthread_t thread;
    void *theirs = NULL;
    CUdeviceptr a = 0;

    OK(cuMemAlloc_v2, &a, 64);
    OK(cuStreamGetId, NULL, &legacy);
    OK(cuStreamGetId, CU_STREAM_LEGACY, &same);
    SAME(same, legacy);
    OK(cuStreamGetId, CU_STREAM_PER_THREAD, &mine);
    OK(cuStreamGetId_ptsz, NULL, &same);
    SAME(same, mine);
    OK(cuStreamGetId_ptsz, CU_STREAM_LEGACY, &same);
    SAME(same, legacy);
    TRUE(mine != legacy);
    SAME(pthread_create(&thread, NULL, own_stream, ctx), 0);
    pthread_join(thread, &theirs);
    TRUE((uintptr_t)theirs != mine && (uintptr_t)theirs != legacy);
    OK(cuMemsetD32Async, a, 5, 1, CU_STREAM_PER_THREAD);
    OK(cuStreamSynchronize, CU_STREAM_PER_THREAD);
    SAME(api_word(a), 5);
    OK(cuMemsetD32Async_ptsz, a, 6, 1, NULL);
    OK(cuStreamSynchronize_ptsz, NULL);
    SAME(api_word(a), 6);
    OK(cuMemsetD32Async, a, 7, 1, CU_STREAM_LEGACY);
    OK(cuStreamQuery_ptsz, NULL);
    SAME(api_word(a), 7);
    OK(cuMemsetD8_v2_ptds, a, 1, 64);
    SAME(api_word(a), 0x01010101);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord, NULL, NULL);
}

void api_case_events(void) {
    CUevent a = NULL, b = NULL, untimed = NULL;
    CUdeviceptr at = 0;
    CUstream s = NULL;
    float ms = -1;

    api_begin();
    OK(cuMemAlloc_v2, &at, MIB);
    OK(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate, &a, CU_EVENT_DEFAULT);
    OK(cuEventCreate, &b, CU_EVENT_BLOCKING_SYNC);
    OK(cuEventCreate, &untimed, CU_EVENT_DISABLE_TIMING);
    OK(cuEventQuery, a);
    OK(cuEventSynchronize, a);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime, &ms, a, b);
    for (int i = 0; i < 3; i++) {
        OK(cuEventRecord, a, s);
        OK(cuMemsetD8Async, at, 1, MIB, s);
        OK(cuEventRecordWithFlags, b, s, 0);
        OK(cuEventSynchronize, b);
        OK(cuEventQuery, a);
        ms = -1;
        OK(cuEventElapsedTime, &ms, a, b);
        TRUE(ms >= 0 && ms < 60000);
        float back = 1;
        OK(cuEventElapsedTime, &back, b, a);
        TRUE(back <= 0);
    }
    OK(cuEventRecord, untimed, s);
    OK(cuEventSynchronize, untimed);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime, &ms, a, untimed);
    INVALID(cuEventElapsedTime, NULL, a, b);
    INVALID(cuEventCreate, &untimed, 0x100);
    INVALID(cuEventCreate, &untimed, CU_EVENT_INTERPROCESS);
    INVALID(cuEventCreate, NULL, 0);
    INVALID(cuEventRecordWithFlags, a, s, 8);
    INVALID(cuStreamWaitEvent, s, a, 8);
    OK(cuEventDestroy_v2, a);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy_v2, a);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery, a);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord, a, s);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuEventSynchronize, a);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuStreamWaitEvent, s, a, 0);
    OK(cuEventDestroy_v2, b);
}
