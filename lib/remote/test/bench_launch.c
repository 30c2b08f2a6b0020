/* bench_launch: how long a launch takes the client of a worker on the same machine, in bursts as programs make them, by the
 * form of its parameters; of the bursts the median. With `relay` client and worker share no memory. */
#define _GNU_SOURCE
#include "remote/generated/cuda_decode.h"
#include "remote/test/pair.h"
#include "remote/test/relay.h"
#include "remote/test/sequence.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)
#define BURSTS 201
#define LAUNCHES 294

static struct remote_cuda_driver d;
static CUstream stream;
static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry none() { ret; }\n"
                          ".visible .entry divvy_fill(.param .u64 a, .param .u32 b, .param .u64 c)"
                          " { ret; }\n";

static double now(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

static void measure(const char *what, CUfunction f, void **params, void **extra) {
    double times[BURSTS];

    for (int i = 0; i < BURSTS; i++) {
        double begin = now();
        for (int k = 0; k < LAUNCHES; k++) {
            OK(d.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, params, extra));
        }
        times[i] = (now() - begin) / LAUNCHES;
        OK(d.cuStreamSynchronize(stream));
    }
    qsort(times, BURSTS, sizeof *times, compare);
    printf("%-24s %4.0f ns, at most %4.0f\n", what, times[BURSTS / 2], times[BURSTS - 1]);
}

int main(int argc, char **argv) {
    sim_machine machine;
    CUcontext context;
    CUmodule module;
    CUfunction fill, none;
    CUdeviceptr memory;
    unsigned value = 1;
    uint64_t words = 1;
    struct {
        CUdeviceptr to;
        uint64_t value, words;
    } block = {0, 1, 1};
    size_t size = sizeof block;
    void *params[] = {&memory, &value, &words};
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};

    setting_describe(&machine);
    machine.cuda_version = 13040;
    setting_make(&machine);
    apart_start(false);
    bool relayed = argc > 1 && strcmp(argv[1], "relay") == 0;
    if (relayed) {
        relay_start();
    }
    remote_cuda_driver_find(&d, pair_find);
    OK(d.cuInit(0));
    OK(d.cuCtxCreate_v2(&context, 0, 0));
    OK(d.cuStreamCreate(&stream, 1));
    OK(d.cuMemAlloc_v2(&memory, 4096));
    block.to = memory;
    OK(d.cuModuleLoadData(&module, ptx));
    OK(d.cuModuleGetFunction(&none, module, "none"));
    OK(d.cuModuleGetFunction(&fill, module, "divvy_fill"));
    measure("no parameters", none, NULL, NULL);
    measure("three parameters", fill, params, NULL);
    measure("the same packed", fill, NULL, extra);
    if (relayed) {
        relay_end();
    }
    apart_end();
    return 0;
}
