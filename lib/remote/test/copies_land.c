/* Threads that post copies to host memory at random places, and learn in all ways that they are done: then the memory is as each
 * of them knows it. */
#include "remote/test/copies_land.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ROOM (1u << 20)
#define THREADS 4u

static uint64_t draw(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

/* A thread with streams of its own. Each copy is of bytes that no other copy has. */
struct own {
    uint64_t seed;
    CUstream one, other;
    CUevent event;
    CUdeviceptr device;
    unsigned char *host, *shadow;
};

/* Learns by some call that all in the first stream is done. */
static void learn(struct own *own) {
    unsigned char byte;
    CUresult result;

    switch (draw(&own->seed) % 7) {
    case 0:
        OK(cuStreamSynchronize(own->one));
        return;
    case 1:
        OK(cuCtxSynchronize());
        return;
    case 2:
        while ((result = cuStreamQuery(own->one)) == CUDA_ERROR_NOT_READY) {
        }
        OK(result);
        return;
    case 3:
        OK(cuEventRecord(own->event, own->one));
        OK(cuEventSynchronize(own->event));
        return;
    case 4:
        OK(cuEventRecord(own->event, own->one));
        while ((result = cuEventQuery(own->event)) == CUDA_ERROR_NOT_READY) {
        }
        OK(result);
        return;
    case 5: /* a stream that waits for the first */
        OK(cuEventRecord(own->event, own->one));
        OK(cuStreamWaitEvent(own->other, own->event, 0));
        OK(cuStreamSynchronize(own->other));
        return;
    default: /* a copy that blocks, of memory which is not the program's to know of */
        OK(cuEventRecord(own->event, own->one));
        OK(cuStreamWaitEvent(CU_STREAM_PER_THREAD, own->event, 0));
        OK(cuMemcpyDtoH_v2_ptds(&byte, own->device, 1));
    }
}

static void copy_some(struct own *own) {
    uint64_t width = 1 + draw(&own->seed) % 900, height = 1 + draw(&own->seed) % 60;
    uint64_t size = draw(&own->seed) % 8 ? 1 + draw(&own->seed) % 30000 : ROOM / 2;
    uint64_t at = draw(&own->seed) % (ROOM - size), from = draw(&own->seed) % (ROOM - size);
    unsigned char value = (unsigned char)draw(&own->seed);

    OK(cuMemsetD8Async(own->device + from, value, size, own->one));
    if (draw(&own->seed) % 4) {
        OK(cuMemcpyDtoHAsync_v2(own->host + at, own->device + from, size, own->one));
        memset(own->shadow + at, value, size);
        return;
    }
    const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = own->device,
                                .srcPitch = 1024,
                                .dstMemoryType = CU_MEMORYTYPE_HOST,
                                .dstHost = own->host,
                                .dstXInBytes = 3,
                                .dstPitch = 2048,
                                .WidthInBytes = width,
                                .Height = height};
    OK(cuMemsetD2D8Async(own->device, 1024, value, width, height, own->one));
    OK(cuMemcpy2DAsync_v2(&rows, own->one));
    for (uint64_t y = 0; y < height; y++) {
        memset(own->shadow + y * 2048 + 3, value, width);
    }
}

static void *run_thread(void *number) {
    struct own own = {.seed = UINT64_C(88172645463325252) + 977 * (uintptr_t)number};

    OK(cuCtxSetCurrent(land_context));
    OK(cuMemAlloc_v2(&own.device, ROOM));
    OK(cuMemsetD8_v2(own.device, 0, ROOM));
    OK(cuEventCreate(&own.event, CU_EVENT_DISABLE_TIMING));
    own.one = land_stream();
    own.other = land_stream();
    own.host = land_pinned(ROOM);
    own.shadow = calloc(1, ROOM);
    CHECK(own.shadow);
    OK(cuCtxSynchronize());
    for (int i = 0; i < 60; i++) {
        for (uint64_t k = draw(&own.seed) % 30; k > 0; k--) {
            copy_some(&own);
        }
        learn(&own);
        CHECK(memcmp(own.host, own.shadow, ROOM) == 0);
    }
    OK(cuMemFreeHost(own.host));
    OK(cuMemFree_v2(own.device));
    free(own.shadow);
    return NULL;
}

void land_threads(void) {
    pthread_t threads[THREADS];

    for (size_t i = 0; i < THREADS; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, run_thread, (void *)i), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        CHECK_EQUAL(pthread_join(threads[i], NULL), 0);
    }
}
