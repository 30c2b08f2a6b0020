/* Streams and events: order, time, host functions, waits, the bounded queue, errors that stick. */
#define _GNU_SOURCE
#include "simgpu/cuda/test/cuda.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define MS 1000000ull

/* What host functions saw and did. */
static struct {
    pthread_mutex_t lock;
    char order[64];
    int go; /* futex-like: a function waits until it is set */
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note(void *what) {
    pthread_mutex_lock(&seen.lock);
    seen.order[strlen(seen.order)] = *(const char *)what;
    pthread_mutex_unlock(&seen.lock);
}

static void hold(void *what) {
    while (!__atomic_load_n(&seen.go, __ATOMIC_ACQUIRE)) {
        usleep(1000);
    }
    note(what);
}

static uint64_t begun_at;

static void begin(void *unused) {
    (void)unused;
    hold(" ");
    __atomic_store_n(&begun_at, sg_now(), __ATOMIC_RELEASE);
}

/* A host function holds the work behind it until the test has looked. */
static void check_time(void) {
    CUstream s;
    CUevent a, b, untimed;
    float ms;

    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&a, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&b, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    FAILS(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventQuery(a));
    uint64_t before = sg_now();
    seen.go = 0;
    OK(cuLaunchHostFunc(s, begin, NULL));
    OK(cuEventRecord(a, s));
    OK(cuda_busy(s, 20 * MS));
    OK(cuEventRecord(b, s));
    FAILS(cuEventQuery(b), CUDA_ERROR_NOT_READY);
    FAILS(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_NOT_READY);
    FAILS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    OK(cuStreamQuery(NULL));
    __atomic_store_n(&seen.go, 1, __ATOMIC_RELEASE);
    OK(cuEventSynchronize(b));
    OK(cuStreamQuery(s));
    OK(cuEventElapsedTime(&ms, a, b));
    CHECK(begun_at > before);
    /* Both were recorded between the end of the host function and now. */
    CHECK(ms >= 20.0f && ms <= (float)(sg_now() - begun_at) / (float)MS + 0.001f);
    FAILS(cuEventElapsedTime(&ms, a, untimed), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventDestroy_v2(a));
    FAILS(cuEventDestroy_v2(a), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventDestroy_v2(b));
    OK(cuEventDestroy_v2(untimed));
    OK(cuStreamDestroy_v2(s));
    FAILS(cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
}

static void called_back(CUstream stream, CUresult status, void *what) {
    CHECK(stream != NULL);
    OK(status);
    note(what);
}

static void check_host_functions(void) {
    CUstream s, other;
    CUdeviceptr a;
    CUevent e;
    int value = 0;

    OK(cuStreamCreate(&s, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc_v2(&a, 4));
    memset(seen.order, 0, sizeof seen.order);
    seen.go = 0;
    OK(cuLaunchHostFunc(s, hold, "1"));
    OK(cuMemsetD32Async(a, 5, 1, s));
    OK(cuEventRecord(e, s));
    OK(cuStreamAddCallback(s, called_back, "2", 0));
    /* The fill has not happened, nor has what waits for it; an unrelated stream goes on. */
    OK(cuStreamWaitEvent(other, e, 0));
    OK(cuLaunchHostFunc(other, note, "o"));
    OK(cuMemcpyDtoHAsync_v2(&value, a, 4, other));
    FAILS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    FAILS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    FAILS(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    CHECK_EQUAL(value, 0);
    __atomic_store_n(&seen.go, 1, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(other));
    CHECK_EQUAL(value, 5);
    OK(cuStreamSynchronize(s));
    CHECK(strcmp(seen.order, "12o") == 0 || strcmp(seen.order, "1o2") == 0);
    /* The legacy stream waits for blocking streams, with no event between them. */
    memset(seen.order, 0, sizeof seen.order);
    seen.go = 0;
    OK(cuLaunchHostFunc(s, hold, "a"));
    OK(cuMemsetD32Async(a, 6, 1, NULL));
    OK(cuLaunchHostFunc(NULL, note, "b"));
    OK(cuLaunchHostFunc(s, note, "c"));
    __atomic_store_n(&seen.go, 1, __ATOMIC_RELEASE);
    OK(cuCtxSynchronize());
    CHECK(strcmp(seen.order, "abc") == 0);
    OK(cuMemcpyDtoH_v2(&value, a, 4));
    CHECK_EQUAL(value, 6);
    OK(cuMemFree_v2(a));
    OK(cuEventDestroy_v2(e));
    OK(cuStreamDestroy_v2(s));
    OK(cuStreamDestroy_v2(other));
}

/* A host function runs when the work before it is done in time. */
static uint64_t called_at;

static void stamp(void *unused) {
    (void)unused;
    __atomic_store_n(&called_at, sg_now(), __ATOMIC_RELEASE);
}

static void check_host_time(void) {
    uint64_t before = sg_now();

    OK(cuda_busy(NULL, 15 * MS));
    OK(cuLaunchHostFunc(NULL, stamp, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK(called_at - before >= 15 * MS);
}

static void check_values(void) {
    CUstream s;
    CUdeviceptr a;
    uint32_t value = 0;

    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&a, 64));
    OK(cuMemsetD8_v2(a, 0, 64));
    OK(cuStreamWaitValue32(s, a, 3, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuStreamWriteValue32(s, a + 8, 77, 0));
    FAILS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    OK(cuMemcpyDtoH_v2(&value, a + 8, 4));
    CHECK_EQUAL(value, 0);
    OK(cuStreamWriteValue32(NULL, a, 4, 0));
    OK(cuStreamSynchronize(s));
    OK(cuMemcpyDtoH_v2(&value, a + 8, 4));
    CHECK_EQUAL(value, 77);
    FAILS(cuStreamWaitValue64(s, a + 4, 0, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(a));
    OK(cuStreamDestroy_v2(s));
}

/* As many launches are queued at once as the machine says; the next one has to wait for the
   first. That it does not wait sooner is seen on a virtual clock (test_time.c). */
static void short_queue(sim_machine *machine) {
    machine->queue_depth = 16;
}

static void check_queue(void) {
    CUstream s;

    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    uint64_t before = sg_now();
    for (int i = 0; i < 20; i++) {
        OK(cuda_busy(s, 20 * MS));
    }
    CHECK(sg_now() - before >= 80 * MS);
    OK(cuStreamSynchronize(s));
    CHECK(sg_now() - before >= 400 * MS);
    OK(cuStreamDestroy_v2(s));
}

static void *per_thread(void *out) {
    CUcontext ctx = out;
    unsigned long long id;

    OK(cuCtxSetCurrent(ctx));
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, &id));
    return (void *)(uintptr_t)id;
}

static void check_default_streams(CUcontext ctx) {
    unsigned long long legacy, mine, same;
    unsigned flags;
    pthread_t thread;
    void *theirs;
    int priority;
    CUstream s;

    OK(cuStreamGetId(NULL, &legacy));
    OK(cuStreamGetId_ptsz(NULL, &mine));
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, &same));
    CHECK_EQUAL(mine, same);
    CHECK(legacy != mine);
    OK(cuStreamGetId_ptsz(CU_STREAM_LEGACY, &same));
    CHECK_EQUAL(legacy, same);
    CHECK_EQUAL(pthread_create(&thread, NULL, per_thread, ctx), 0);
    pthread_join(thread, &theirs);
    CHECK((uintptr_t)theirs != mine && (uintptr_t)theirs != legacy);
    OK(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, -99));
    OK(cuStreamGetPriority(s, &priority));
    CHECK_EQUAL(priority, -5);
    OK(cuStreamGetFlags(s, &flags));
    CHECK_EQUAL(flags, CU_STREAM_NON_BLOCKING);
    OK(cuStreamDestroy_v2(s));
    FAILS(cuStreamCreate(&s, 64), CUDA_ERROR_INVALID_VALUE);
}

/* Kernels that really happen, and one that reaches for memory that is not there. */
static void check_kernels(void) {
    enum { N = 700000 };
    static float x[N], y[N];
    CUdeviceptr a, b, c;
    unsigned n = N, words[3];

    for (int i = 0; i < N; i++) {
        x[i] = (float)i;
        y[i] = 2;
    }
    OK(cuMemAlloc_v2(&a, sizeof x));
    OK(cuMemAlloc_v2(&b, sizeof x));
    OK(cuMemAlloc_v2(&c, sizeof x));
    OK(cuMemcpyHtoD_v2(a, x, sizeof x));
    OK(cuMemcpyHtoD_v2(b, y, sizeof y));
    void *add[] = {&a, &b, &c, &n};
    OK(cuLaunchKernel(cuda_kernel("divvy_vecadd"), N / 256, 1, 1, 256, 1, 1, 0, NULL, add, NULL));
    OK(cuMemcpyDtoH_v2(x, c, sizeof x));
    for (int i = 0; i < N; i++) {
        CHECK(x[i] == (float)i + 2);
    }
    uint64_t count = 3;
    unsigned value = 0xabcd;
    struct {
        CUdeviceptr p;
        unsigned value;
        uint64_t n;
    } packed = {a, value, count};
    size_t size = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel(cuda_kernel("divvy_fill"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    OK(cuMemcpyDtoH_v2(words, a, 12));
    CHECK(words[0] == value && words[2] == value);
    FAILS(cuLaunchKernel(cuda_kernel("other"), 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
          CUDA_ERROR_INVALID_VALUE);
    FAILS(cuLaunchKernel(cuda_kernel("other"), 1, 1, 1, 1024, 2, 1, 0, NULL, NULL, NULL),
          CUDA_ERROR_INVALID_VALUE);
    FAILS(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
    packed.p = 4096;
    OK(cuLaunchKernel(cuda_kernel("divvy_fill"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    FAILS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    FAILS(cuMemAlloc_v2(&a, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuDevicePrimaryCtxReset_v2(0));
}

int main(void) {
    CUcontext ctx = cuda_start(short_queue);

    check_time();
    check_host_functions();
    check_host_time();
    check_values();
    check_queue();
    check_default_streams(ctx);
    check_kernels();
    return 0;
}
