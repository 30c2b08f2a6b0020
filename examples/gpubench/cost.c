/* The commands that time single calls: init and cost. */
#include "driver.h"
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BATCHES 21u

static uint64_t cpu_ns(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

/* Processor time of the whole process so far: loading this program, the driver's library, and
 * cuInit. */
int command_init(const struct options *options) {
    (void)options;
    uint64_t before = cpu_ns();
    CUresult result = driver.cuInit(0);
    uint64_t after = cpu_ns();
    printf("{\"command\":\"init\",\"result\":\"%s\",\"open_cpu_ns\":%llu,\"init_cpu_ns\":%llu}\n",
           result_name(result), (unsigned long long)before, (unsigned long long)(after - before));
    return result == CUDA_SUCCESS ? 0 : 1;
}

static int ascending(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

struct figure {
    double median, least;
};

static struct figure summarise(double *batch) {
    qsort(batch, BATCHES, sizeof *batch, ascending);
    return (struct figure){.median = batch[BATCHES / 2], .least = batch[0]};
}

/* Frees one of the live allocations, chosen at random, and allocates another in its place. */
static CUresult time_pairs(const struct options *options, CUdeviceptr *live, struct figure *pair) {
    uint64_t state = options->seed * 2 + 1, each = options->count / BATCHES + 1;
    double batch[BATCHES];
    for (unsigned b = 0; b < BATCHES; b++) {
        uint64_t start = now_ns();
        for (uint64_t i = 0; i < each; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            uint64_t which = (state >> 33) % options->live;
            CUresult result = driver.cuMemFree_v2(live[which]);
            if (result == CUDA_SUCCESS) {
                result = driver.cuMemAlloc_v2(&live[which], options->bytes);
            }
            if (result != CUDA_SUCCESS) {
                return result;
            }
        }
        batch[b] = (double)(now_ns() - start) / (double)each;
    }
    *pair = summarise(batch);
    return CUDA_SUCCESS;
}

/* Times launches of an empty kernel. The queue is emptied between batches, outside the timing. */
static CUresult time_launches(const struct options *options, struct figure *launch) {
    enum { QUEUE = 256 };
    struct kernels kernels;
    CUresult result = kernels_load(&kernels);
    uint64_t no_time = 0, rounds = options->count / BATCHES / QUEUE + 1;
    void *parameters[] = {&no_time};
    double batch[BATCHES];
    for (unsigned b = 0; b < BATCHES && result == CUDA_SUCCESS; b++) {
        uint64_t spent = 0;
        for (uint64_t r = 0; r < rounds && result == CUDA_SUCCESS; r++) {
            uint64_t start = now_ns();
            for (unsigned i = 0; i < QUEUE && result == CUDA_SUCCESS; i++) {
                result = driver.cuLaunchKernel(kernels.busy, 1, 1, 1, 1, 1, 1, 0, NULL, parameters,
                                               NULL);
            }
            spent += now_ns() - start;
            if (result == CUDA_SUCCESS) {
                result = driver.cuCtxSynchronize();
            }
        }
        batch[b] = (double)spent / (double)(rounds * QUEUE);
    }
    *launch = summarise(batch);
    return result;
}

int command_cost(const struct options *options) {
    if (options->live == 0) {
        fputs("gpubench: cost needs --live 1 or more\n", stderr);
        return 2;
    }
    CUdeviceptr *live = calloc(options->live, sizeof *live);
    struct figure pair = {0, 0}, launch = {0, 0};
    CUresult result = live == NULL ? CUDA_ERROR_OUT_OF_MEMORY : driver_start(options->device);
    for (uint64_t i = 0; i < options->live && result == CUDA_SUCCESS; i++) {
        result = driver.cuMemAlloc_v2(&live[i], options->bytes);
    }
    if (result == CUDA_SUCCESS) {
        result = time_pairs(options, live, &pair);
    }
    if (result == CUDA_SUCCESS) {
        result = time_launches(options, &launch);
    }
    printf("{\"command\":\"cost\",\"result\":\"%s\",\"live\":%llu,\"bytes\":%llu,"
           "\"pair_ns\":%.1f,\"pair_least_ns\":%.1f,\"launch_ns\":%.1f,\"launch_least_ns\":%.1f}\n",
           result_name(result), (unsigned long long)options->live,
           (unsigned long long)options->bytes, pair.median, pair.least, launch.median,
           launch.least);
    free(live);
    return result == CUDA_SUCCESS ? 0 : 1;
}
