/* Copies to host memory whose bytes come with a later answer, where both sides share no memory: the client is part of this
 * program, and its link is a stream. Who has learned from any call that a copy is done finds its bytes; a step waits no more often
 * than the program does; what ends before its bytes have come is written to no more. */
#define _GNU_SOURCE
#include "remote/client/inside.h"
#include "remote/link_inside.h"
#include "remote/places.h"
#include "remote/test/copies_land.h"
#include "remote/test/copies_served.h"
#include "simgpu/machine/test/setting.h"

#include "test/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROOM (1u << 20)
#define SMALL 16384u
#define EQUAL 1u /* CU_STREAM_WAIT_VALUE_EQ */

CUcontext land_context;
static unsigned waits;   /* for answers */
static CUdeviceptr gate; /* streams wait for words of it */

struct remote_link *__wrap_remote_link_connect(const char *path, char why[REMOTE_WHY_BYTES]);
bool __wrap_remote_wait(uint64_t sequence, struct remote_reply *reply);
bool __real_remote_wait(uint64_t sequence, struct remote_reply *reply);

struct remote_link *__wrap_remote_link_connect(const char *path, char why[REMOTE_WHY_BYTES]) {
    (void)path;
    return remote_link_client(copies_connect(), REMOTE_LINK_STREAM, REMOTE_HELLO_NS, why);
}

bool __wrap_remote_wait(uint64_t sequence, struct remote_reply *reply) {
    __atomic_add_fetch(&waits, 1, __ATOMIC_RELAXED);
    return __real_remote_wait(sequence, reply);
}

static unsigned waited(void) {
    return __atomic_exchange_n(&waits, 0, __ATOMIC_RELAXED);
}

void copies_load(bool remote, struct remote_cuda_driver *driver) {
    (void)remote;
    (void)driver;
}

static void begin(void) {
    setenv("DIVVY_REMOTE_SOCKET", copies_folder, 1);
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&land_context, 0, 0));
    OK(cuMemAlloc_v2(&gate, 4096));
    OK(cuMemsetD8_v2(gate, 0, 4096));
    OK(cuCtxSynchronize());
}

CUstream land_stream(void) {
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

unsigned char *land_pinned(size_t size) {
    void *at;

    OK(cuMemHostAlloc(&at, size, 0));
    memset(at, 0, size);
    return at;
}

static bool is_all(const unsigned char *at, int value, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (at[i] != value) {
            return false;
        }
    }
    return true;
}

/* Has the stream wait until it is let go on, by another one. */
static void hold(CUstream stream, cuuint32_t turn) {
    OK(cuStreamWaitValue32_v2(stream, gate, turn, EQUAL));
}

static void let_go(cuuint32_t turn) {
    static CUstream other;

    other = other ? other : land_stream();
    OK(cuStreamWriteValue32_v2(other, gate, turn, 0));
}

/* Small copies there and back and work between, as a step of a program has them. */
static void check_step(void) {
    static unsigned char from[SMALL];
    CUstream stream = land_stream();
    unsigned char *to = land_pinned(SMALL);
    CUdeviceptr at;

    OK(cuMemAlloc_v2(&at, SMALL));
    for (int i = 1; i < 20; i++) {
        memset(from, i, sizeof from);
        OK(cuMemcpyHtoDAsync_v2(at, from, sizeof from, stream));
        if (i == 1) { /* the first finds out about the area */
            OK(cuStreamSynchronize(stream));
        }
        waited();
        for (int k = 0; k < 30; k++) {
            OK(cuMemsetD8Async(at + SMALL / 2, (unsigned char)(i + k), SMALL / 2, stream));
        }
        OK(cuMemcpyDtoHAsync_v2(to, at, SMALL, stream));
        CHECK_EQUAL(waited(), 0);
        OK(cuStreamSynchronize(stream));
        CHECK_EQUAL(waited(), 1);
        CHECK(is_all(to, i, SMALL / 2) && is_all(to + SMALL / 2, i + 29, SMALL / 2));
    }
    /* As long as the stream stands still nobody waits for the copy. */
    hold(stream, 5);
    OK(cuMemsetD8Async(at, 77, SMALL, stream));
    OK(cuMemcpyDtoHAsync_v2(to, at, SMALL, stream));
    CHECK_EQUAL(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    CHECK(is_all(to, 19, SMALL / 2));
    let_go(5);
    OK(cuStreamSynchronize(stream));
    CHECK(is_all(to, 77, SMALL));
}

/* A copy onward from the same memory comes after it, as the stream has it. */
static void check_onward(void) {
    CUstream stream = land_stream();
    unsigned char *by = land_pinned(SMALL), *to = land_pinned(SMALL);
    CUdeviceptr at, other;

    OK(cuMemAlloc_v2(&at, SMALL));
    OK(cuMemAlloc_v2(&other, SMALL));
    for (int i = 1; i < 10; i++) {
        OK(cuMemsetD8Async(at, (unsigned char)i, SMALL, stream));
        OK(cuMemcpyDtoHAsync_v2(by, at, SMALL, stream));
        OK(cuMemcpyHtoDAsync_v2(other, by + 1, SMALL - 1, stream));
        OK(cuMemcpyDtoHAsync_v2(to, other, SMALL - 1, stream));
        OK(cuStreamSynchronize(stream));
        CHECK(is_all(to, i, SMALL - 1));
    }
}

/* Memory that the driver does not know has its bytes when the call is back. */
static void check_pageable(void) {
    static unsigned char to[SMALL];
    CUstream stream = land_stream();
    CUdeviceptr at;

    OK(cuMemAlloc_v2(&at, SMALL));
    OK(cuMemsetD8Async(at, 9, SMALL, stream));
    OK(cuMemcpyDtoHAsync_v2(to, at, SMALL, stream));
    CHECK(is_all(to, 9, SMALL));
    OK(cuMemHostRegister_v2(to, SMALL, 0));
    OK(cuMemsetD8Async(at, 10, SMALL, stream));
    OK(cuMemcpyDtoHAsync_v2(to, at, SMALL, stream));
    OK(cuMemHostUnregister(to));
    CHECK(is_all(to, 10, SMALL));
}

static void *wait_for(void *stream) {
    OK(cuCtxSetCurrent(land_context));
    OK(cuStreamSynchronize(stream));
    return NULL;
}

/* Memory that has ended is written to no more, also if the program has it again; and another thread's wait brings bytes too. */
static void check_freed(void) {
    CUstream stream = land_stream();
    unsigned char *to = land_pinned(SMALL), *kept = land_pinned(SMALL);
    pthread_t thread;
    CUdeviceptr at;

    OK(cuMemAlloc_v2(&at, SMALL));
    hold(stream, 6);
    OK(cuMemsetD8Async(at, 6, SMALL, stream));
    OK(cuMemcpyDtoHAsync_v2(to, at, SMALL, stream));
    OK(cuMemcpyDtoHAsync_v2(kept, at, SMALL, stream));
    OK(cuMemFreeHost(to));
    to = land_pinned(SMALL);
    CHECK_EQUAL(pthread_create(&thread, NULL, wait_for, stream), 0);
    let_go(6);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
    CHECK(is_all(to, 0, SMALL) && is_all(kept, 6, SMALL));
}

/* More than may be on their way: who posts one too many waits, and copies to the GPU find room. */
static void check_many(void) {
    static unsigned char from[4u << 20];
    CUstream stream = land_stream();
    unsigned char *to = land_pinned(20u << 20);
    CUdeviceptr at;

    OK(cuMemAlloc_v2(&at, ROOM));
    for (unsigned i = 0; i < 3 * REMOTE_MOST_LANDINGS; i++) {
        OK(cuMemsetD8Async(at, (unsigned char)i, 100, stream));
        OK(cuMemcpyDtoHAsync_v2(to + (size_t)100 * i, at, 100, stream));
    }
    for (unsigned i = 1; i <= 20; i++) {
        OK(cuMemsetD8Async(at, (unsigned char)(100 + i), 500000, stream));
        OK(cuMemcpyDtoHAsync_v2(to + ROOM * (size_t)(i - 1) + 30000, at, 500000, stream));
    }
    for (unsigned i = 0; i < 20; i++) {
        OK(cuMemcpyHtoDAsync_v2(at, from, ROOM, stream));
    }
    OK(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < 3 * REMOTE_MOST_LANDINGS; i++) {
        CHECK(is_all(to + (size_t)100 * i, (unsigned char)i, 100));
    }
    for (unsigned i = 1; i <= 20; i++) {
        CHECK(is_all(to + ROOM * (size_t)(i - 1) + 30000, (int)(100 + i), 500000));
    }
}

/* A context ends after what it has. */
static void check_context(void) {
    static unsigned char to[SMALL];
    CUcontext more;
    CUdeviceptr at;

    OK(cuCtxCreate_v2(&more, 0, 0));
    CUstream stream = land_stream();
    OK(cuMemAlloc_v2(&at, SMALL));
    OK(cuMemsetD8Async(at, 3, SMALL, stream));
    OK(cuMemHostRegister_v2(to, SMALL, 0));
    OK(cuMemcpyDtoHAsync_v2(to, at, SMALL, stream));
    OK(cuStreamDestroy_v2(stream));
    OK(cuCtxDestroy_v2(more));
    CHECK(is_all(to, 3, SMALL));
    OK(cuCtxSetCurrent(land_context));
}

static unsigned char seen;
static void look(void *at) {
    seen = *(unsigned char *)at;
}

/* A function of the program asks nothing. */
static void check_functions(void) {
    CUstream stream = land_stream();
    unsigned char *to = land_pinned(SMALL);
    CUdeviceptr at;

    OK(cuMemAlloc_v2(&at, SMALL));
    for (unsigned i = 1; i < 10; i++) {
        OK(cuMemsetD8Async(at, (unsigned char)i, SMALL, stream));
        OK(cuMemcpyDtoHAsync_v2(to, at, SMALL, stream));
        OK(cuLaunchHostFunc(stream, look, to + SMALL - 1));
        OK(cuStreamSynchronize(stream));
        CHECK_EQUAL(seen, i);
    }
}

static const char *send_landed(uint64_t block, int32_t result, size_t bytes) {
    static uint64_t body[4 * SMALL / 8];
    const struct remote_answer head = {
        .size = (uint32_t)(sizeof head + 8 + bytes), .call = REMOTE_LANDED, .result = result};

    memset(body, 0xee, sizeof body);
    body[0] = block;
    return remote_landed(&head, (const unsigned char *)body);
}

/* A worker that lies writes nothing that is not due. */
static void check_lies(void) {
    CUstream stream = land_stream();
    unsigned char *to = land_pinned(SMALL);
    CUdeviceptr at;

    OK(cuMemAlloc_v2(&at, SMALL));
    CHECK(send_landed(0, 0, 64));
    hold(stream, 8);
    OK(cuMemcpyDtoHAsync_v2(to + 8, at, 60, stream));
    for (uint64_t block = 0; block < 3; block++) {
        CHECK(send_landed(block, 0, 56) && send_landed(block, 0, 72) && send_landed(block, 0, 0));
        CHECK(send_landed(block, 1, 64));
    }
    CHECK(send_landed(1, 0, 64) && send_landed(UINT64_MAX, 0, 64));
    CHECK(is_all(to, 0, SMALL));
    CHECK(!send_landed(0, 0, 64));
    CHECK(is_all(to, 0, 8) && is_all(to + 8, 0xee, 60) && is_all(to + 68, 0, 8));
    CHECK(send_landed(0, 0, 64));
}

/* A child has nothing of the copies, and its parent loses none. */
static void check_fork(void) {
    CUstream stream = land_stream();
    unsigned char *to = land_pinned(SMALL);
    CUdeviceptr at;

    OK(cuMemAlloc_v2(&at, SMALL));
    OK(cuMemsetD8Async(at, 4, SMALL, stream));
    OK(cuMemcpyDtoHAsync_v2(to, at, SMALL, stream));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        _exit(cuStreamSynchronize(stream) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    copies_wait(child);
    OK(cuStreamSynchronize(stream));
    CHECK(is_all(to, 4, SMALL));
}

/* What has not come when the worker dies does not come, and everybody hears of it. */
static void check_death(void) {
    CUstream stream = land_stream();
    unsigned char *to = land_pinned(SMALL);
    CUdeviceptr at;

    OK(cuMemAlloc_v2(&at, SMALL));
    hold(stream, 9);
    OK(cuMemcpyDtoHAsync_v2(to, at, SMALL, stream));
    CHECK_EQUAL(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    copies_kill_worker();
    CHECK_EQUAL(cuStreamSynchronize(stream), CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHECK_EQUAL(cuMemFreeHost(to), CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHECK(is_all(to, 0, SMALL));
}

/* With DIVVY_REMOTE=strict each copy is waited for. */
static void check_strict(void) {
    CUstream stream = land_stream();
    unsigned char *to = land_pinned(SMALL);
    CUdeviceptr at;

    OK(cuMemAlloc_v2(&at, SMALL));
    OK(cuMemsetD8Async(at, 4, SMALL, stream));
    OK(cuMemcpyDtoHAsync_v2(to, at, SMALL, stream));
    CHECK(is_all(to, 4, SMALL));
}

static void check_in(const char *way, void (*check)(void)) {
    pid_t child = copies_fork();

    if (child == 0) {
        setenv("DIVVY_REMOTE", way, 1);
        begin();
        check();
        _exit(0);
    }
    copies_wait(child);
}

int main(void) {
    sim_machine machine;

    setting_describe(&machine);
    machine.cuda_version = 13040;
    setting_make(&machine);
    copies_start_worker();
    check_in("", check_step);
    check_in("", check_onward);
    check_in("", check_pageable);
    check_in("", land_threads);
    check_in("strict", land_threads);
    check_in("strict", check_strict);
    check_in("", check_freed);
    check_in("", check_many);
    check_in("", check_context);
    check_in("", check_functions);
    check_in("", check_lies);
    check_in("", check_fork);
    check_in("", check_death);
    copies_end_worker();
    return 0;
}
