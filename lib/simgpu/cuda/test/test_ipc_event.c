/* Events of one process in another, on a virtual clock: work is unfinished until the test moves the
 * clock, or until it lets the other process write what a stream waits for. */
#include "simgpu/cuda/test/cuda.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORK 30000000ull
#define EVENT 500ull

struct offer {
    CUipcEventHandle running, held;
};

static int woken;

static void start(void) {
    CUcontext ctx;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
}

static void receive(int channel, char expected) {
    char word = 0;

    CHECK_EQUAL(read(channel, &word, 1), 1);
    CHECK_EQUAL(word, expected);
}

/* Gives one event behind a kernel and one behind a wait for a value that is written on demand. */
static int exporter(int channel) {
    CUevent running, held, own;
    struct offer offer;
    CUdeviceptr word;
    CUstream s;

    start();
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&word, 4));
    OK(cuStreamWriteValue32(s, word, 0, 0));
    OK(cuEventCreate(&running, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuda_busy(NULL, WORK));
    OK(cuEventRecord(running, NULL));
    OK(cuIpcGetEventHandle(&offer.running, running));
    FAILS(cuIpcOpenEventHandle(&own, offer.running), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuEventCreate(&held, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuStreamWaitValue32(s, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuEventRecord(held, s));
    OK(cuIpcGetEventHandle(&offer.held, held));
    CHECK_EQUAL(write(channel, &offer, sizeof offer), (ssize_t)sizeof offer);
    receive(channel, 'g');
    OK(cuStreamWriteValue32(NULL, word, 1, 0));
    CHECK_EQUAL(write(channel, "w", 1), 1);
    receive(channel, 'e');
    return 0;
}

/* Opens the event and lets a stream wait for it; neither is reached yet. */
static CUevent import(CUipcEventHandle handle, CUstream *s) {
    CUevent event;

    OK(cuIpcOpenEventHandle(&event, handle));
    FAILS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    OK(cuStreamCreate(s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitEvent(*s, event, 0));
    FAILS(cuStreamQuery(*s), CUDA_ERROR_NOT_READY);
    return event;
}

static void *await_event(void *event) {
    OK(cuEventSynchronize(event));
    __atomic_add_fetch(&woken, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void *await_stream(void *stream) {
    OK(cuStreamSynchronize(stream));
    __atomic_add_fetch(&woken, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void reached(CUevent event, CUstream s) {
    OK(cuEventQuery(event));
    OK(cuEventSynchronize(event));
    OK(cuStreamSynchronize(s));
    OK(cuStreamDestroy_v2(s));
    OK(cuEventDestroy_v2(event));
}

static void check_import(int channel) {
    struct sg_instance *in = &sg_driver.instance;
    pthread_t waiters[2];
    struct offer offer;
    CUstream s, t;

    CHECK_EQUAL(read(channel, &offer, sizeof offer), (ssize_t)sizeof offer);
    CUevent running = import(offer.running, &s), held = import(offer.held, &t);
    CHECK_EQUAL(pthread_create(&waiters[0], NULL, await_event, running), 0);
    CHECK_EQUAL(pthread_create(&waiters[1], NULL, await_stream, s), 0);
    sg_clock_move(in, WORK + EVENT - 1);
    setting_pause();
    FAILS(cuEventQuery(running), CUDA_ERROR_NOT_READY);
    FAILS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    CHECK_EQUAL(__atomic_load_n(&woken, __ATOMIC_ACQUIRE), 0);
    sg_clock_move(in, 1);
    for (int i = 0; i < 2; i++) {
        CHECK_EQUAL(pthread_join(waiters[i], NULL), 0);
    }
    reached(running, s);
    /* No time ends the wait for a value. */
    sg_clock_move(in, 1000 * WORK);
    FAILS(cuEventQuery(held), CUDA_ERROR_NOT_READY);
    FAILS(cuStreamQuery(t), CUDA_ERROR_NOT_READY);
    CHECK_EQUAL(write(channel, "g", 1), 1);
    receive(channel, 'w');
    EVENTUALLY((sg_clock_move(in, EVENT), cuEventQuery(held) == CUDA_SUCCESS));
    reached(held, t);
}

int main(void) {
    sim_machine machine;
    int ends[2], status;

    setting_describe(&machine);
    machine.virtual_clock = 1;
    machine.event_ns = EVENT;
    setting_make(&machine);
    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_t other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        _exit(exporter(ends[1]));
    }
    close(ends[1]);
    start();
    check_import(ends[0]);
    CHECK_EQUAL(write(ends[0], "e", 1), 1);
    CHECK_EQUAL(waitpid(other, &status, 0), other);
    CHECK_EQUAL(status, 0);
    return 0;
}
