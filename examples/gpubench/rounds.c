/* Commands about launches that are new, or that wait for each other: rounds and await. */
#include "launch.h"

#include <stdio.h>
#include <stdlib.h>

static CUresult make_streams(const struct options *options, CUstream *streams) {
    CUresult result = driver_start(options->device);
    for (unsigned i = 0; i < options->streams && result == CUDA_SUCCESS; i++) {
        result = driver.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING);
    }
    return result;
}

static CUresult once(const struct options *options, const CUfunction *kernels,
                     const CUstream *streams) {
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < options->different && result == CUDA_SUCCESS; i++) {
        result = launch_one(options, kernels[i], streams[i % options->streams]);
        if (result == CUDA_SUCCESS && options->sync_every != 0 &&
            (i + 1) % options->sync_every == 0) {
            result = driver.cuStreamSynchronize(streams[i % options->streams]);
        }
    }
    return result == CUDA_SUCCESS ? driver.cuCtxSynchronize() : result;
}

static int end(const char *command, CUresult result) {
    printf("{\"command\":\"%s\",\"result\":\"%s\"}\n", command, result_name(result));
    return result == CUDA_SUCCESS ? 0 : 1;
}

/* Launches each of the different kernels once, and that so many times. */
int command_rounds(const struct options *options) {
    CUfunction *kernels = calloc(options->different, sizeof *kernels);
    CUstream *streams = calloc(options->streams, sizeof *streams);
    CUresult result = kernels == NULL || streams == NULL ? CUDA_ERROR_OUT_OF_MEMORY
                                                         : make_streams(options, streams);
    if (result == CUDA_SUCCESS) {
        result = kernels_different(kernels, options->different, 1);
    }
    for (uint64_t i = 0; i < options->count && result == CUDA_SUCCESS; i++) {
        uint64_t begin = now_ns();
        result = once(options, kernels, streams);
        printf("{\"round\":%llu,\"begin_ns\":%llu,\"wall_ns\":%llu}\n", (unsigned long long)i,
               (unsigned long long)begin, (unsigned long long)(now_ns() - begin));
    }
    free(kernels);
    free(streams);
    return end("rounds", result);
}

/* In one stream a kernel that waits for a word, in another one that writes it. */
static CUresult pair(const struct kernels *kernels, const CUstream *streams, CUdeviceptr word,
                     unsigned value) {
    uint64_t one = 1;
    void *awaits[] = {&word, &value}, *fills[] = {&word, &value, &one};
    CUresult result =
        driver.cuLaunchKernel(kernels->await, 1, 1, 1, 1, 1, 1, 0, streams[0], awaits, NULL);
    if (result == CUDA_SUCCESS) {
        result = driver.cuLaunchKernel(kernels->fill, 1, 1, 1, 1, 1, 1, 0, streams[1], fills, NULL);
    }
    for (int i = 0; i < 2 && result == CUDA_SUCCESS; i++) {
        result = driver.cuStreamSynchronize(streams[i]);
    }
    return result;
}

int command_await(const struct options *given) {
    CUstream streams[2];
    struct options options = *given;
    struct kernels kernels;
    CUdeviceptr word = 0;
    options.streams = 2;
    CUresult result = make_streams(&options, streams);
    if (result == CUDA_SUCCESS) {
        result = kernels_load(&kernels);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuMemAlloc_v2(&word, sizeof(unsigned));
    }
    for (unsigned i = 0; i < options.count && result == CUDA_SUCCESS; i++) {
        unsigned before = i;
        result = driver.cuMemcpyHtoD_v2(word, &before, sizeof before);
        uint64_t begin = now_ns();
        if (result == CUDA_SUCCESS) {
            result = pair(&kernels, streams, word, i + 1);
        }
        printf("{\"pair\":%u,\"wall_ns\":%llu}\n", i, (unsigned long long)(now_ns() - begin));
    }
    return end("await", result);
}
