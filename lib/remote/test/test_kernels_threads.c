/* Launches with the client's library and a worker in another process: of threads that load code beside each other, of one with
 * little stack, in the child of a fork, and such as fail late. */
#define _GNU_SOURCE
#include "remote/generated/cuda_decode.h"
#include "remote/test/pair.h"
#include "remote/test/sequence.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)
#define THREADS 4u
#define ROUNDS 300u
#define WORDS 2048u

static struct remote_cuda_driver d;
static CUcontext context;
static CUdeviceptr memory;
static const char text[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry divvy_fill(.param .u64 a, .param .u32 b, .param .u64 c) { ret; }\n"
    ".visible .entry large(.param .align 8 .b8 a[32000]) { ret; }\n";

static void *launch_rounds(void *number) {
    unsigned me = (unsigned)(uintptr_t)number;
    CUdeviceptr mine = memory + (CUdeviceptr)4 * WORDS * me;
    CUstream stream;

    OK(d.cuCtxSetCurrent(context));
    OK(d.cuStreamCreate(&stream, 1));
    for (unsigned i = 0; i < ROUNDS; i++) {
        CUmodule module;
        CUfunction fill;
        const char *name;
        unsigned value = me << 16 | i, there = 0;
        CUdeviceptr at = mine + 4 * (i % WORDS);
        uint64_t words = 1;

        OK(d.cuModuleLoadDataEx(&module, text, 0, NULL, NULL));
        OK(d.cuModuleGetFunction(&fill, module, "divvy_fill"));
        OK(d.cuFuncGetName(&name, fill));
        CHECK(strcmp(name, "divvy_fill") == 0);
        for (unsigned k = 0; k < 20; k++) {
            OK(d.cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&at, &value, &words},
                                NULL));
        }
        OK(d.cuStreamSynchronize(stream));
        OK(d.cuMemcpyDtoH_v2(&there, at, sizeof there));
        CHECK_EQUAL(there, value);
        OK(d.cuModuleUnload(module));
    }
    return NULL;
}

static void check_threads(void) {
    pthread_t threads[THREADS];

    for (uintptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, launch_rounds, (void *)i) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

static void *launch_large(void *function) {
    static unsigned char bytes[32000];

    OK(d.cuCtxSetCurrent(context));
    OK(d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){bytes}, NULL));
    OK(d.cuCtxSynchronize());
    return NULL;
}

/* Less stack than the parameters have bytes. A sanitizer takes more for itself. */
static void check_stack(CUfunction large) {
    pthread_attr_t attributes;
    pthread_t thread;

    CHECK(pthread_attr_init(&attributes) == 0);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    CHECK(pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN + 12288) == 0);
#endif
    CHECK(pthread_create(&thread, &attributes, launch_large, large) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    pthread_attr_destroy(&attributes);
}

/* In the child every call answers that nothing is initialised, whatever its parent has asked before. */
static void check_fork(CUmodule module, CUfunction fill, CUfunction large, CUevent event) {
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        static unsigned char bytes[32000];
        CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
                                       .value.programmaticEvent = {event, 0, 0}};
        CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, &attribute, 1};
        void *params[] = {bytes, bytes, bytes};
        CUlinkState state;
        CUfunction f;
        const char *name;
        size_t count;
        const CUresult results[] = {
            d.cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL),
            d.cuLaunchKernel(large, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL),
            d.cuLaunchKernel(fill, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL),
            d.cuLaunchKernelEx(&config, fill, params, NULL),
            d.cuLaunchCooperativeKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, params),
            d.cuFuncGetName(&name, fill),
            d.cuFuncGetParamCount(fill, &count),
            d.cuModuleGetFunction(&f, module, "large"),
            d.cuModuleLoadDataEx(&module, text, 0, NULL, NULL),
            d.cuModuleLoad(&module, "/dev/null"),
            d.cuLinkCreate_v2(0, NULL, NULL, &state),
            d.cuModuleUnload(module),
        };

        for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
            if (results[i] != CUDA_ERROR_NOT_INITIALIZED) {
                fprintf(stderr, "call %zu of the child answers %d\n", i, results[i]);
                _exit(1);
            }
        }
        _exit(0);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

/* What only the driver can judge is told by the next call that waits, once. */
static void check_late(CUfunction fill) {
    uint64_t words = 1;
    unsigned value = 1;
    void *params[] = {&memory, &value, &words};

    OK(d.cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 1u << 30, NULL, params, NULL));
    OK(d.cuLaunchCooperativeKernel(fill, 65535, 1, 1, 1024, 1, 1, 0, NULL, params));
    OK(d.cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    CHECK_EQUAL(d.cuCtxSynchronize(), CUDA_ERROR_INVALID_VALUE);
    OK(d.cuCtxSynchronize());
    OK(d.cuLaunchCooperativeKernel(fill, 65535, 1, 1, 1024, 1, 1, 0, NULL, params));
    CHECK_EQUAL(d.cuStreamSynchronize(NULL), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    OK(d.cuCtxSynchronize());
}

int main(void) {
    sim_machine machine;
    CUmodule module;
    CUfunction fill, large;
    CUevent event;
    size_t count;

    setting_describe(&machine);
    machine.cuda_version = 13040;
    setting_make(&machine);
    apart_start(false);
    remote_cuda_driver_find(&d, pair_find);
    OK(d.cuInit(0));
    OK(d.cuCtxCreate_v2(&context, 0, 0));
    OK(d.cuMemAlloc_v2(&memory, THREADS * 4 * WORDS));
    OK(d.cuModuleLoadData(&module, text));
    OK(d.cuModuleGetFunction(&fill, module, "divvy_fill"));
    OK(d.cuModuleGetFunction(&large, module, "large"));
    OK(d.cuEventCreate(&event, 0));
    OK(d.cuFuncGetParamCount(fill, &count));
    check_fork(module, fill, large, event);
    check_late(fill);
    check_stack(large);
    check_threads();
    OK(d.cuCtxSynchronize());
    apart_end();
    return 0;
}
