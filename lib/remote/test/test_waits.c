/* A thread of a program that does not wait holds up no other: what the driver itself would wait in is given to it so that the
 * records of other threads go on, among which may be what ends the wait. */
#include "remote/test/whole.h"
#include "test/check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static CUcontext context;
static CUdeviceptr memory;

static void *find(const char *name) {
    void *library = dlopen(REMOTE_BUILD "/lib/remote/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, name) : NULL;

    CHECK(found);
    return found;
}

static CUresult (*wait_value)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
static CUresult (*write_value)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

/* Another thread, in a stream that waits for no other. */
static void *release(void *stream) {
    OK(cu.cuCtxSetCurrent(context));
    OK(write_value(stream, memory, 1, 0));
    OK(cu.cuStreamSynchronize(stream));
    return NULL;
}

static void check_fill(CUstream held, void (*fill)(void)) {
    CUstream other;
    pthread_t thread;
    unsigned char byte = 0;

    OK(cu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cu.cuMemsetD32Async(memory, 0, 1, other));
    OK(cu.cuStreamSynchronize(other));
    OK(wait_value(held, memory, 1, 1 /* equal */));
    fill();
    CHECK_EQUAL(pthread_create(&thread, NULL, release, other), 0);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
    OK(cu.cuCtxSynchronize());
    OK(cu.cuMemcpyDtoH_v2(&byte, memory + 4096, 1));
    CHECK_EQUAL(byte, 7);
    OK(cu.cuStreamDestroy_v2(other));
}

static void fill_legacy(void) {
    OK(cu.cuMemsetD8_v2(memory + 4096, 7, 64));
}

static void fill_own(void) {
    CUresult (*own)(CUdeviceptr, unsigned char, size_t);
    void *at = find("cuMemsetD8_v2_ptds");

    memcpy(&own, &at, sizeof at);
    OK(own(memory + 4096, 7, 64));
}

static void play(void *argument) {
    void *at = find("cuStreamWaitValue32_v2");

    (void)argument;
    memcpy(&wait_value, &at, sizeof at);
    at = find("cuStreamWriteValue32_v2");
    memcpy(&write_value, &at, sizeof at);
    OK(cu.cuInit(0));
    OK(cu.cuCtxCreate_v2(&context, 0, 0));
    OK(cu.cuMemAlloc_v2(&memory, 65536));
    check_fill(NULL, fill_legacy);
    OK(cu.cuMemsetD8_v2(memory + 4096, 0, 64));
    check_fill(CU_STREAM_PER_THREAD, fill_own);
}

int main(void) {
    whole_start();
    CHECK_EQUAL(whole_run(true, play, NULL), 0);
    return 0;
}
