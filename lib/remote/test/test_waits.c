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

/* What another thread does that the driver holds while a stream stands still. */
struct held {
    CUresult (*call)(struct held *held);
    CUcontext context;
    CUstream stream;
    CUdeviceptr memory;
    CUmodule module;
    void *host;
    bool begun, returned;
};

static CUresult free_memory(struct held *held) {
    return cu.cuMemFree_v2(held->memory);
}

static CUresult free_host(struct held *held) {
    return cu.cuMemFreeHost(held->host);
}

static CUresult unload(struct held *held) {
    return cu.cuModuleUnload(held->module);
}

static CUresult end_stream(struct held *held) {
    return cu.cuStreamDestroy_v2(held->stream);
}

static CUresult end_context(struct held *held) {
    return cu.cuCtxDestroy_v2(held->context);
}

static void *call_held(void *of) {
    struct held *held = of;

    OK(cu.cuCtxSetCurrent(context));
    __atomic_store_n(&held->begun, true, __ATOMIC_RELEASE);
    OK(held->call(held));
    __atomic_store_n(&held->returned, true, __ATOMIC_RELEASE);
    return NULL;
}

static bool is(const bool *what) {
    return __atomic_load_n(what, __ATOMIC_ACQUIRE);
}

/* Work and questions, each of which is done while the other thread is held or has not come so far. Nobody else ends what it waits
 * for: the test would stand still. */
static void work_beside(struct held *held, CUstream other) {
    size_t left, all;

    while (!is(&held->begun)) {
        OK(cu.cuStreamQuery(other));
    }
    for (int i = 0; i < 300; i++) {
        OK(cu.cuMemsetD32Async(memory + 8192, 7, 1, other));
        OK(cu.cuStreamSynchronize(other));
        OK(cu.cuMemGetInfo_v2(&left, &all));
        CHECK(!is(&held->returned));
        if (held->call != end_stream && held->call != end_context) {
            CHECK_EQUAL(cu.cuStreamQuery(held->stream), CUDA_ERROR_NOT_READY);
        }
    }
}

static void check_held(CUresult (*call)(struct held *held)) {
    static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                              ".visible .entry k() { ret; }\n";
    struct held held = {.call = call, .context = context};
    CUstream other;
    pthread_t thread;

    OK(cu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cu.cuMemsetD32Async(memory, 0, 1, other));
    OK(cu.cuStreamSynchronize(other));
    OK(cu.cuMemAlloc_v2(&held.memory, 65536));
    OK(cu.cuMemHostAlloc(&held.host, 4096, 0));
    OK(cu.cuModuleLoadData(&held.module, ptx));
    if (call == end_context) {
        OK(cu.cuCtxCreate_v2(&held.context, 0, 0));
    }
    OK(cu.cuStreamCreate(&held.stream, CU_STREAM_NON_BLOCKING));
    OK(wait_value(held.stream, memory, 1, 1 /* equal */));
    OK(cu.cuMemsetD32Async(memory + 4096, 7, 1, held.stream));
    OK(cu.cuCtxSetCurrent(context));
    CHECK_EQUAL(pthread_create(&thread, NULL, call_held, &held), 0);
    work_beside(&held, other);
    OK(write_value(other, memory, 1, 0));
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
    OK(cu.cuStreamDestroy_v2(other));
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
    check_held(free_memory);
    check_held(free_host);
    check_held(unload);
    check_held(end_stream);
    check_held(end_context);
}

int main(void) {
    whole_start();
    CHECK_EQUAL(whole_run(true, play, NULL), 0);
    return 0;
}
