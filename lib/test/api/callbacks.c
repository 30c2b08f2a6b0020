/* Values in memory that streams write and wait for; functions of the program in a stream's order. */
#include "test/api/api.h"

#include <pthread.h>
#include <string.h>

void api_case_values(void) {
    CUstream s = NULL;
    CUdeviceptr a = 0;
    uint64_t wide = 0;
    CUstreamBatchMemOpParams both[2];

    api_begin();
    OK(cuMemAlloc_v2, &a, 256);
    OK(cuMemsetD8_v2, a, 0, 256);
    OK(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    OK(cuCtxSynchronize);
    static const struct {
        uint32_t before, wanted, after;
        unsigned flags;
    } waits[] = {
        {2, 3, 3, CU_STREAM_WAIT_VALUE_GEQ}, {2, 3, 9, CU_STREAM_WAIT_VALUE_GEQ},
        {2, 3, 3, CU_STREAM_WAIT_VALUE_EQ},  {9, 3, 3, CU_STREAM_WAIT_VALUE_EQ},
        {4, 3, 6, CU_STREAM_WAIT_VALUE_AND},
    };
    for (size_t i = 0; i < COUNT(waits); i++) {
        OK(cuStreamWriteValue32, s, a, waits[i].before, 0);
        OK(cuStreamSynchronize, s);
        OK(cuStreamWaitValue32, s, a, waits[i].wanted, waits[i].flags);
        OK(cuStreamWriteValue32, s, a + 8, (uint32_t)i + 1, 0);
        ANSWERS(CUDA_ERROR_NOT_READY, cuStreamQuery, s);
        SAME(api_word(a + 8), i);
        OK(cuStreamWriteValue32, NULL, a, waits[i].after, 0);
        OK(cuStreamSynchronize, s);
        SAME(api_word(a + 8), i + 1);
    }
    OK(cuStreamWriteValue64, s, a + 16, 0x0102030405060708, 0);
    OK(cuStreamWaitValue64, s, a + 16, 0x0102030405060708, CU_STREAM_WAIT_VALUE_EQ);
    OK(cuStreamSynchronize, s);
    OK(cuMemcpyDtoH_v2, &wide, a + 16, 8);
    TRUE(wide == 0x0102030405060708);
    memset(both, 0, sizeof both);
    for (unsigned i = 0; i < 2; i++) {
        both[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        both[i].writeValue.address = a + 32 + 4 * i;
        both[i].writeValue.value = 70 + i;
    }
    OK(cuStreamBatchMemOp, s, 2, both, 0);
    OK(cuStreamSynchronize, s);
    SAME(api_word(a + 32), 70);
    SAME(api_word(a + 36), 71);
    INVALID(cuStreamWaitValue64, s, a + 4, 0, 0);
    INVALID(cuStreamWriteValue32, s, a + 1, 0, 0);
    INVALID(cuStreamWriteValue32, s, ABSENT, 0, 0);
    both[0].operation = (CUstreamBatchMemOpType)99;
    INVALID(cuStreamBatchMemOp, s, 2, both, 0);
    INVALID(cuStreamBatchMemOp, s, 2, NULL, 0);
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool open;
    char order[64];
    int wrong;
    pthread_t by;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};

static void note(void *what) {
    pthread_mutex_lock(&seen.lock);
    seen.order[strlen(seen.order)] = *(const char *)what;
    seen.by = pthread_self();
    pthread_mutex_unlock(&seen.lock);
}

static void hold(void *what) {
    pthread_mutex_lock(&seen.lock);
    while (!seen.open) {
        pthread_cond_wait(&seen.opened, &seen.lock);
    }
    pthread_mutex_unlock(&seen.lock);
    note(what);
}

static void let_go(void) {
    pthread_mutex_lock(&seen.lock);
    seen.open = true;
    pthread_cond_broadcast(&seen.opened);
    pthread_mutex_unlock(&seen.lock);
}

static void begin_again(void) {
    memset(seen.order, 0, sizeof seen.order);
    seen.open = false;
}

static void called_back(CUstream stream, CUresult status, void *what) {
    seen.wrong += stream == NULL || status != CUDA_SUCCESS;
    note(what);
}

/* Functions must not call the driver: it says so. */
static CUresult inner;
static void call_driver(void *unused) {
    CUdeviceptr p;

    (void)unused;
    inner = CU(cuMemAlloc_v2)(&p, 1);
}

void api_case_callbacks(void) {
    CUstream s = NULL, other = NULL;
    CUdeviceptr a = 0;
    CUevent e = NULL;
    uint32_t *value = NULL; /* pinned: a copy to other memory may wait for its end */

    api_begin();
    OK(cuMemAlloc_v2, &a, 64);
    OK(cuMemHostAlloc, (void **)&value, 4, 0);
    *value = 0;
    OK(cuMemsetD8_v2, a, 0, 64);
    OK(cuStreamCreate, &s, CU_STREAM_DEFAULT);
    OK(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate, &e, CU_EVENT_DISABLE_TIMING);
    OK(cuCtxSynchronize);
    for (uint32_t round = 1; round <= 3; round++) {
        begin_again();
        OK(cuLaunchHostFunc, s, hold, "1");
        OK(cuMemsetD32Async, a, round, 1, s);
        OK(cuEventRecord, e, s);
        OK(cuStreamAddCallback, s, called_back, "2", 0);
        OK(cuStreamWaitEvent, other, e, 0);
        if (!api_lacks("mapped")) { /* else it waits for its end */
            OK(cuMemcpyDtoHAsync_v2, value, a, 4, other);
        }
        ANSWERS(CUDA_ERROR_NOT_READY, cuEventQuery, e);
        ANSWERS(CUDA_ERROR_NOT_READY, cuStreamQuery, s);
        SAME(*value, round - 1);
        let_go();
        if (api_lacks("mapped")) {
            OK(cuMemcpyDtoHAsync_v2, value, a, 4, other);
        }
        OK(cuStreamSynchronize, other);
        SAME(*value, round);
        OK(cuStreamSynchronize, s);
        TRUE(strcmp(seen.order, "12") == 0);
        SAME(seen.wrong, 0);
        TRUE(!pthread_equal(seen.by, pthread_self()));
    }
    begin_again();
    OK(cuLaunchHostFunc, s, hold, "a");
    OK(cuLaunchHostFunc, NULL, note, "b");
    OK(cuLaunchHostFunc, s, note, "c");
    let_go();
    OK(cuCtxSynchronize);
    TRUE(strcmp(seen.order, "abc") == 0);
    OK(cuLaunchHostFunc, s, call_driver, NULL);
    OK(cuStreamSynchronize, s);
    TRUE(inner != CUDA_SUCCESS);
    INVALID(cuLaunchHostFunc, s, NULL, NULL);
    INVALID(cuStreamAddCallback, s, NULL, NULL, 0);
    INVALID(cuStreamAddCallback, s, called_back, "x", 1);
    OK(cuStreamDestroy_v2, s);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuLaunchHostFunc, s, note, "x");
}
