/* Random copies of all kinds in two processes: one has the simulated driver, the other a worker of its own. After each the
 * results are equal, and so is all memory. Also with several threads. */
#define _GNU_SOURCE
#include "remote/test/copies_served.h"
#include "remote/test/copies_steps.h"
#include "simgpu/machine/test/setting.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)
#define THREADS 6

static struct remote_cuda_driver driver;
static CUcontext context;

void copies_load(bool remote, struct remote_cuda_driver *to) {
    copies_open(remote ? copies_folder : SIMGPU_FOLDER);
    remote_cuda_driver_find(to, copies_find);
}

static void load(bool remote) {
    copies_load(remote, &driver);
    OK(driver.cuInit(0));
    OK(driver.cuCtxCreate_v2(&context, 0, 0));
}

/* A thread with memory and a stream of its own, of whose contents it keeps account. */
struct own {
    uint64_t seed;
    CUdeviceptr device;
    CUstream stream;
    unsigned char *shadow, *from, *to, *pinned;
};

static uint64_t next(struct own *own) {
    own->seed = (own->seed ^ own->seed << 13);
    own->seed ^= own->seed >> 7;
    return own->seed ^= own->seed << 17;
}

static void thread_step(struct own *own) {
    size_t bytes = next(own) % 3 ? next(own) % 70000 : next(own) % COPIES_ROOM;
    size_t at = next(own) % (COPIES_ROOM - bytes + 1), to = next(own) % (COPIES_ROOM - bytes + 1);
    unsigned form = (unsigned)(next(own) % 5);

    memset(own->from + at, (int)next(own), bytes / 2);
    switch (form) {
    case 0: /* what the program writes afterwards is not copied */
        OK(driver.cuMemcpyHtoDAsync_v2(own->device + to, own->from + at, bytes, own->stream));
        memcpy(own->shadow + to, own->from + at, bytes);
        memset(own->from + at, 0x77, bytes);
        return;
    case 1:
        OK(driver.cuStreamSynchronize(own->stream));
        memcpy(own->pinned + at, own->from + at, bytes);
        OK(driver.cuMemcpyHtoDAsync_v2(own->device + to, own->pinned + at, bytes, own->stream));
        memcpy(own->shadow + to, own->from + at, bytes);
        return;
    case 2:
        OK(driver.cuMemcpyDtoHAsync_v2(own->to, own->device + at, bytes, own->stream));
        OK(driver.cuStreamSynchronize(own->stream));
        CHECK(memcmp(own->to, own->shadow + at, bytes) == 0);
        return;
    case 3:
        OK(driver.cuMemcpyDtoHAsync_v2(own->pinned + to, own->device + at, bytes, own->stream));
        OK(driver.cuStreamSynchronize(own->stream));
        CHECK(memcmp(own->pinned + to, own->shadow + at, bytes) == 0);
        return;
    default:
        OK(driver.cuStreamSynchronize(own->stream));
        OK(driver.cuMemcpyDtoH_v2(own->to, own->device + at, bytes));
        CHECK(memcmp(own->to, own->shadow + at, bytes) == 0);
    }
}

static void *run_thread(void *number) {
    struct own own = {.seed = UINT64_C(88172645463325252) + (uintptr_t)number};

    OK(driver.cuCtxSetCurrent(context));
    OK(driver.cuMemAlloc_v2(&own.device, COPIES_ROOM));
    OK(driver.cuMemsetD8_v2(own.device, 0, COPIES_ROOM));
    OK(driver.cuMemHostAlloc((void **)&own.pinned, COPIES_ROOM, 0));
    OK(driver.cuStreamCreate(&own.stream, CU_STREAM_NON_BLOCKING));
    OK(driver.cuCtxSynchronize());
    own.shadow = calloc(3, COPIES_ROOM);
    CHECK(own.shadow);
    own.from = own.shadow + COPIES_ROOM;
    own.to = own.from + COPIES_ROOM;
    for (int i = 0; i < 150; i++) {
        thread_step(&own);
    }
    OK(driver.cuStreamSynchronize(own.stream));
    OK(driver.cuMemcpyDtoH_v2(own.to, own.device, COPIES_ROOM));
    CHECK(memcmp(own.to, own.shadow, COPIES_ROOM) == 0);
    OK(driver.cuMemFreeHost(own.pinned));
    OK(driver.cuMemFree_v2(own.device));
    free(own.shadow);
    return NULL;
}

static void check_threads(void) {
    pthread_t threads[THREADS];

    for (size_t i = 0; i < THREADS; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, run_thread, (void *)i), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        CHECK_EQUAL(pthread_join(threads[i], NULL), 0);
    }
}

/* What ends with a context, and what does not. */
static void check_contexts(void) {
    static unsigned char bytes[100000], back[sizeof bytes];
    CUdeviceptr at;
    void *pinned;

    for (int i = 0; i < 3; i++) {
        memset(bytes, i + 1, sizeof bytes);
        OK(driver.cuMemHostAlloc(&pinned, sizeof bytes, CU_MEMHOSTALLOC_PORTABLE));
        OK(driver.cuCtxDestroy_v2(context));
        /* What is left on the thread's stack is the context of the round before. */
        CHECK_EQUAL(driver.cuMemcpyHtoD_v2(4096, bytes, 1),
                    i ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT);
        OK(driver.cuDevicePrimaryCtxRetain(&context, 0));
        OK(driver.cuCtxSetCurrent(context));
        CHECK_EQUAL(driver.cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);
        /* The device's own context has the same name when it is made anew, and other events. */
        for (int k = 0; k < 2; k++) {
            OK(driver.cuMemAlloc_v2(&at, sizeof bytes));
            for (int j = 0; j < 800; j++) {
                OK(driver.cuMemcpyHtoDAsync_v2(at, bytes, sizeof bytes, NULL));
            }
            OK(driver.cuMemcpyDtoH_v2(back, at, sizeof back));
            CHECK(memcmp(back, bytes, sizeof back) == 0);
            OK(driver.cuDevicePrimaryCtxReset_v2(0));
            OK(driver.cuDevicePrimaryCtxRetain(&context, 0));
            OK(driver.cuCtxSetCurrent(context));
        }
        OK(driver.cuDevicePrimaryCtxRelease_v2(0));
        OK(driver.cuCtxCreate_v2(&context, 0, 0));
    }
}

/* A captured copy of pinned memory is done when the graph is launched; a copy that blocks spoils the capture. */
static void check_captures(void) {
    CUstream stream;
    CUgraph graph = NULL;
    CUgraphExec exec;
    CUdeviceptr at;
    unsigned char *pinned, back[64];
    void *more = NULL;

    OK(driver.cuMemAlloc_v2(&at, sizeof back));
    OK(driver.cuMemHostAlloc((void **)&pinned, sizeof back, 0));
    OK(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(driver.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(driver.cuMemcpyHtoDAsync_v2(at, pinned, sizeof back, stream));
    OK(driver.cuStreamEndCapture(stream, &graph));
    OK(driver.cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 1; i < 4; i++) {
        memset(pinned, i, sizeof back);
        OK(driver.cuGraphLaunch(exec, stream));
        OK(driver.cuStreamSynchronize(stream));
        OK(driver.cuMemcpyDtoH_v2(back, at, sizeof back));
        CHECK(back[0] == i && back[63] == i);
    }
    OK(driver.cuGraphExecDestroy(exec));
    OK(driver.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_EQUAL(driver.cuMemcpyDtoH_v2(back, at, sizeof back),
                CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQUAL(driver.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(driver.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_EQUAL(driver.cuMemHostAlloc(&more, 1, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQUAL(driver.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(!more);
    OK(driver.cuMemFreeHost(pinned));
    OK(driver.cuMemFree_v2(at));
}

/* More than a process has files. */
static void check_many(void) {
    enum { MANY = 2500 };
    static unsigned char *all[MANY];
    unsigned char back[16];
    CUdeviceptr at;

    OK(driver.cuMemAlloc_v2(&at, MANY * sizeof back));
    for (size_t i = 0; i < MANY; i++) {
        OK(driver.cuMemHostAlloc((void **)&all[i], 100, 0));
        memset(all[i], (int)i, 100);
        OK(driver.cuMemcpyHtoDAsync_v2(at + i * sizeof back, all[i] + 5, sizeof back, NULL));
    }
    for (size_t i = 0; i < MANY; i++) {
        OK(driver.cuMemcpyDtoH_v2(back, at + i * sizeof back, sizeof back));
        CHECK(back[0] == (unsigned char)i && back[15] == (unsigned char)i);
        OK(driver.cuMemFreeHost(all[i]));
    }
    OK(driver.cuMemFree_v2(at));
}

static unsigned long turns;

/* Copies until that fails, and what it has of the host stays its own. */
static void *copy_on(void *form) {
    unsigned char *bytes = calloc(1, 8u << 20), *pinned;
    CUdeviceptr at;
    CUresult result = CUDA_SUCCESS;

    CHECK(bytes);
    OK(driver.cuCtxSetCurrent(context));
    OK(driver.cuMemAlloc_v2(&at, 8u << 20));
    OK(driver.cuMemHostAlloc((void **)&pinned, 8u << 20, 0));
    while (result == CUDA_SUCCESS) {
        switch ((uintptr_t)form) {
        case 0:
            result = driver.cuMemcpyHtoDAsync_v2(at, bytes, 8u << 20, NULL);
            break;
        case 1:
            result = driver.cuMemcpyDtoH_v2(bytes, at, 8u << 20);
            break;
        default:
            result = driver.cuMemcpyHtoD_v2(at, pinned, 8u << 20);
        }
        __atomic_add_fetch(&turns, 1, __ATOMIC_RELAXED);
    }
    CHECK_EQUAL(result, CUDA_ERROR_DEVICE_UNAVAILABLE);
    memset(pinned, 1, 8u << 20);
    CHECK_EQUAL(driver.cuMemFreeHost(pinned), CUDA_ERROR_DEVICE_UNAVAILABLE);
    free(bytes);
    return NULL;
}

/* Takes all addresses that are free there. */
static void take(uintptr_t at, size_t size) {
    if (mmap((void *)at, size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
             0) == MAP_FAILED &&
        size > 4096) {
        take(at, size / 2);
        take(at + size / 2, size / 2);
    }
}

/* Where the worker has its memory this program has its own, and far around: it gets host memory all the same. */
static void check_taken(void) {
    const uintptr_t around = (uintptr_t)1 << 29;
    unsigned char *first, *pinned;
    CUdeviceptr device;

    OK(driver.cuMemHostAlloc((void **)&first, 4096, 0));
    OK(driver.cuMemFreeHost(first));
    take((uintptr_t)first / around * around - around, around);
    take((uintptr_t)first / around * around, around);
    for (unsigned i = 0; i < 20; i++) {
        OK(driver.cuMemHostAlloc((void **)&pinned, 8192, 0));
        OK(driver.cuMemHostGetDevicePointer_v2(&device, pinned, 0));
        CHECK_EQUAL(device, (uintptr_t)pinned);
        pinned[8191] = 1;
    }
}

static void check_death(void) {
    pthread_t threads[THREADS];

    for (size_t i = 0; i < THREADS; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, copy_on, (void *)(i % 3)), 0);
    }
    EVENTUALLY(__atomic_load_n(&turns, __ATOMIC_RELAXED) > 60);
    copies_kill_worker();
    for (size_t i = 0; i < THREADS; i++) {
        CHECK_EQUAL(pthread_join(threads[i], NULL), 0);
    }
}

static void check_in(bool remote, void (*check)(void)) {
    pid_t child = copies_fork();

    if (child == 0) {
        load(remote);
        check();
        _exit(0);
    }
    copies_wait(child);
}

static void check_both(void (*check)(void)) {
    check_in(false, check);
    check_in(true, check);
}

int main(void) {
    const char *given = getenv("STEPS");
    uint64_t steps = given ? strtoull(given, NULL, 10) : 300;
    sim_machine machine;

    setting_describe(&machine);
    machine.cuda_version = 13040;
    setting_make(&machine);
    copies_start_worker();
    copies_compare(false, steps);
    copies_compare(true, steps);
    check_both(check_threads);
    check_in(true, check_taken);
    check_both(check_contexts);
    check_both(check_captures);
    check_both(check_many);
    check_in(true, check_death);
    copies_end_worker();
    return 0;
}
