/* Threads of a program that retain and release the same primary contexts, make contexts of their own, and allocate and free:
 * each finds what it made, no two have the same memory, and no other's call ends what it uses. */
#define _GNU_SOURCE
#include "remote/test/pair.h"
#include "remote/test/sequence.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4u
#define ROUNDS 150u
#define HELD 6u
#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)

static struct remote_cuda_driver *const driver = &sequence_driver;
/* Memory that a thread has now; the lock is taken around no call. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    CUdeviceptr start;
    size_t size;
} held[THREADS * HELD];

static void hold(unsigned place, CUdeviceptr start, size_t size) {
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < THREADS * HELD; i++) {
        CHECK(i == place || start >= held[i].start + held[i].size || held[i].start >= start + size);
    }
    held[place].start = start;
    held[place].size = size;
    pthread_mutex_unlock(&lock);
}

/* What this thread made is what it says. */
static void check_memory(CUdeviceptr at, size_t size, CUcontext ctx, CUdevice device) {
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_BUFFER_ID};
    uint64_t values[5] = {0};
    void *data[5];

    for (unsigned i = 0; i < 5; i++) {
        data[i] = &values[i];
    }
    OK(driver->cuPointerGetAttributes(5, attributes, data, at + size / 2));
    CHECK_EQUAL(values[0], (uintptr_t)ctx);
    CHECK_EQUAL(values[1], device);
    CHECK_EQUAL(values[2], size);
    CHECK_EQUAL(values[3], at);
    CHECK(values[4] != 0);
}

static void use_memory(unsigned first, CUcontext ctx, CUdevice device, uint64_t *seed) {
    CUdeviceptr at[HELD];
    size_t size[HELD];

    for (unsigned i = 0; i < HELD; i++) {
        *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        size[i] = 1 + (*seed >> 40) % (i ? 5000 : 3000000);
        OK(driver->cuMemAlloc_v2(&at[i], size[i]));
        hold(first + i, at[i], size[i]);
    }
    for (unsigned i = 0; i < HELD; i++) {
        check_memory(at[i], size[i], ctx, device);
        hold(first + i, 0, 0);
        OK(driver->cuMemFree_v2(at[i]));
        CHECK_EQUAL(driver->cuMemFree_v2(at[i] + 1), CUDA_ERROR_INVALID_VALUE);
    }
}

static void *run(void *argument) {
    unsigned number = *(unsigned *)argument;
    uint64_t seed = number + 1;

    for (unsigned round = 0; round < ROUNDS; round++) {
        CUcontext primary, own, now;
        CUdevice device = (CUdevice)((round + number) % 2), of;
        int value;

        OK(driver->cuDevicePrimaryCtxRetain(&primary, device));
        OK(driver->cuCtxSetCurrent(primary));
        OK(driver->cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
        CHECK_EQUAL(value, 32);
        use_memory(number * HELD, primary, device, &seed);
        OK(driver->cuCtxGetDevice(&of));
        CHECK_EQUAL(of, device);
        if (round % 3 == 0) {
            OK(driver->cuCtxCreate_v2(&own, 0, 2));
            use_memory(number * HELD, own, 2, &seed);
            OK(driver->cuCtxDestroy_v2(own));
            OK(driver->cuCtxGetCurrent(&now));
            CHECK(now == primary);
        }
        OK(driver->cuCtxSynchronize());
        OK(driver->cuCtxSetCurrent(NULL));
        OK(driver->cuDevicePrimaryCtxRelease_v2(device));
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    unsigned numbers[THREADS];
    sim_machine machine;

    alarm(300);
    setting_describe(&machine);
    machine.cuda_version = 13040;
    machine.dead_handles = SIM_DEAD_END;
    setting_make(&machine);
    apart_start(false);
    remote_cuda_driver_find(&sequence_driver, pair_find);
    OK(driver->cuInit(0));
    for (unsigned i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, run, &numbers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    apart_end();
    return 0;
}
