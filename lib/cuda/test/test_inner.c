/* Calls inside a call of the driver: those that the driver makes are part of it, those that the
 * program makes are the program's own. A program makes some in signal handlers and callbacks, and
 * can leave a driver call by a jump out of a handler. */
#define _GNU_SOURCE
#include "cuda/test/setting.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>

#define LIMIT (4096 * MIB)
#define JUMPS 1000
#define THREADS 4
#define STACK_BYTES 65536

static struct setting s;
static CUcontext context;

static CUdeviceptr alloc(size_t bytes) {
    CUdeviceptr address = 0;
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, bytes), CUDA_SUCCESS);
    return address;
}

static void give(CUdeviceptr address) {
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(address), CUDA_SUCCESS);
}

static CUdeviceptr alloc_pitched(void) {
    CUdeviceptr address = 0;
    size_t pitch;
    CHECK_EQUAL(CUDA(&s, cuMemAllocPitch_v2)(&address, &pitch, 512, 8192, 4), CUDA_SUCCESS);
    return address;
}

/* The account is what the driver has really given, and the context's estimate. */
static void check_true(void) {
    CHECK_EQUAL(setting_used(&s), s.driver->blocks * BLOCK + BLOCK);
    CHECK_EQUAL(pending_bytes(s.share, 0), 0);
    check_sums(s.share);
}

/* What the program allocates inside a driver call; thread-local, because several threads do. */
static _Thread_local CUdeviceptr inside[8];
static _Thread_local unsigned inside_count;

static void alloc_inside(void) {
    inside[inside_count++] = alloc(3 * MIB);
}

static void give_inside(unsigned count) {
    CHECK_EQUAL(inside_count, count);
    while (inside_count > 0) {
        give(inside[--inside_count]);
    }
    check_true();
}

static void a_callback_is_the_programs(void) {
    s.driver->during_sync = alloc_inside;
    CHECK_EQUAL(CUDA(&s, cuStreamSynchronize)(NULL), CUDA_SUCCESS);
    s.driver->during_sync = NULL;
    CHECK_EQUAL(s.driver->blocks, 2);
    check_true();
    give_inside(1);
}

/* The driver's own call comes after the program's and is still the driver's. */
static void the_drivers_call_is_counted_once(void) {
    s.driver->during_pitch = alloc_inside;
    CUdeviceptr pitched = alloc_pitched();
    s.driver->during_pitch = NULL;
    check_true();
    give(pitched);
    give_inside(1);
}

static void handle(int number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK_EQUAL(sigaction(number, &action, NULL), 0);
}

static void on_signal(int number) {
    (void)number;
    alloc_inside();
}

static void once_more(void) {
    s.driver->during_alloc = NULL;
    raise(SIGUSR2);
}

/* Allocates, and is itself interrupted inside the driver. */
static void on_signal_nested(int number) {
    (void)number;
    s.driver->during_alloc = once_more;
    alloc_inside();
}

static void interrupt(void) {
    s.driver->during_alloc = NULL;
    raise(SIGUSR1);
}

static void handlers_are_the_programs(int flags) {
    handle(SIGUSR1, on_signal_nested, flags);
    handle(SIGUSR2, on_signal, flags);
    for (int i = 0; i < 100; i++) {
        s.driver->during_alloc = interrupt;
        CUdeviceptr outer = alloc(MIB);
        CHECK_EQUAL(s.driver->blocks, 5);
        check_true();
        give(outer);
        give_inside(2);
        s.driver->during_pitch = interrupt;
        CUdeviceptr pitched = alloc_pitched();
        s.driver->during_pitch = NULL;
        check_true();
        give(pitched);
        give_inside(2);
    }
}

static void on_another_stack(void) {
    stack_t stack = {.ss_size = STACK_BYTES, .ss_sp = malloc(STACK_BYTES)};
    CHECK(stack.ss_sp != NULL);
    CHECK_EQUAL(sigaltstack(&stack, NULL), 0);
    handlers_are_the_programs(SA_ONSTACK);
    stack.ss_flags = SS_DISABLE;
    CHECK_EQUAL(sigaltstack(&stack, NULL), 0);
    free(stack.ss_sp);
}

static _Thread_local sigjmp_buf out;

static void on_signal_leave(int number) {
    (void)number;
    siglongjmp(out, 1);
}

static void leave(void) {
    raise(SIGUSR1);
}

/* Leaves the driver so many times, and allocates after each. */
static void *jump(void *unused) {
    (void)unused;
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(context), CUDA_SUCCESS);
    for (volatile int i = 0; i < JUMPS; i++) {
        if (sigsetjmp(out, 1) == 0) {
            CUDA(&s, cuStreamSynchronize)(NULL);
            CHECK(false);
        }
        CUdeviceptr first = alloc(3 * MIB), second = alloc_pitched();
        if (i % 2 == 0) {
            give(first);
            give(second);
        } else {
            give(second);
            give(first);
        }
    }
    alloc_inside();
    inside[inside_count++] = alloc_pitched();
    return NULL;
}

static void jumps_leave_nothing_behind(void) {
    pthread_t threads[THREADS];
    handle(SIGUSR1, on_signal_leave, 0);
    s.driver->during_sync = leave;
    jump(NULL);
    check_true();
    give_inside(2);
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, jump, NULL), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    s.driver->during_sync = NULL;
    /* The threads' last allocations are still there, and still within the limit. */
    CHECK(s.driver->blocks >= THREADS * 4);
    check_true();
    CUdeviceptr rest;
    size_t left = LIMIT - s.driver->blocks * BLOCK - BLOCK;
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&rest, left + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&rest, left), CUDA_SUCCESS);
    check_true();
}

int main(void) {
    setting_make(&s, 1, LIMIT, NULL);
    setting_open(&s);
    context = setting_context(&s);
    check_true();
    a_callback_is_the_programs();
    the_drivers_call_is_counted_once();
    handlers_are_the_programs(0);
    on_another_stack();
    jumps_leave_nothing_behind();
    return 0;
}
