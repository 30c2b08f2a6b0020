/* Time in calls that wait for the GPU or for copies to and from the host is counted, while the GPU's
 * time is divided, and no other time. */
#include "cuda/test/busy.h"

#include <string.h>
#include <time.h>

#define TRIES 10

static struct setting s;
static char host[1 << 20];

static uint64_t awaited(void) {
    return __atomic_load_n(&s.share->gpu[0].awaited, __ATOMIC_RELAXED);
}
static uint64_t copied(void) {
    return __atomic_load_n(&s.share->gpu[0].copied, __ATOMIC_RELAXED);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static CUstream stream;
static CUevent event;

static void by_context(void) {
    CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
}
static void by_stream(void) {
    busy_sync(&s, stream);
}
static void by_event(void) {
    CHECK_EQUAL(CUDA(&s, cuEventRecord)(event, stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuEventSynchronize)(event), CUDA_SUCCESS);
}

/* What a wait for a kernel adds is no more than the time that passed. Returns whether it is about the kernel's. */
static bool counts_kernel(void (*wait)(void)) {
    uint64_t before = awaited(), began = now();
    CHECK_EQUAL(busy_launch(&s, stream, 20 * MS), CUDA_SUCCESS);
    wait();
    uint64_t counted = awaited() - before, passed = now() - began;
    CHECK(counted <= passed + MS);
    CHECK_EQUAL(copied(), 0);
    return counted > 5 * MS;
}

/* A busy machine may keep the program from waiting until the kernel has ended, but not each time. */
static void waits(void (*wait)(void)) {
    unsigned tries = 1;
    while (!counts_kernel(wait)) {
        CHECK(tries++ < TRIES);
    }
}

int main(void) {
    CUdeviceptr memory;
    busy_make(&s, 1);
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuEventCreate)(&event, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&memory, sizeof host), CUDA_SUCCESS);
    waits(by_context);
    waits(by_stream);
    waits(by_event);

    uint64_t before = awaited(), began = now();
    CHECK_EQUAL(CUDA(&s, cuMemcpyHtoDAsync_v2)(memory, host, sizeof host, stream), CUDA_SUCCESS);
    CHECK_EQUAL(copied(), 0);
    CHECK_EQUAL(CUDA(&s, cuMemcpyHtoD_v2)(memory, host, sizeof host), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemcpyDtoH_v2)(host, memory, sizeof host), CUDA_SUCCESS);
    CHECK(copied() > 0 && copied() <= now() - began + MS);
    CHECK_EQUAL(CUDA(&s, cuMemcpyDtoD_v2)(memory, memory, 64), CUDA_SUCCESS);
    CHECK_EQUAL(awaited(), before);

    by_context();
    busy_budget.flags = 0;
    busy_grant(&s, 0);
    before = awaited();
    uint64_t crossed = copied();
    CHECK_EQUAL(busy_launch(&s, stream, 5 * MS), CUDA_SUCCESS);
    by_context();
    by_event();
    CHECK_EQUAL(CUDA(&s, cuMemcpyDtoH_v2)(host, memory, sizeof host), CUDA_SUCCESS);
    CHECK_EQUAL(awaited(), before);
    CHECK_EQUAL(copied(), crossed);
    return 0;
}
