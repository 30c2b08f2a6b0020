/* The commands that launch: spin, graph and fault. */
#include "launch.h"

#include <stdio.h>

CUresult launch_busy(const struct options *options, const struct kernels *kernels,
                     CUstream stream) {
    int fixed = options->loops != 0;
    uint64_t amount = fixed ? options->loops : options->ns;
    void *parameters[] = {&amount};
    return driver.cuLaunchKernel(fixed ? kernels->loop : kernels->busy, options->grid, 1, 1, 1, 1,
                                 1, 0, stream, parameters, NULL);
}

CUresult launch_one(const struct options *options, CUfunction kernel, CUstream stream) {
    uint64_t amount = options->ns;
    void *parameters[] = {&amount};
    return driver.cuLaunchKernel(kernel, options->grid, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static int report(const char *command, CUresult result, const struct options *options,
                  uint64_t wall_ns, float event_ms) {
    printf("{\"command\":\"%s\",\"result\":\"%s\",\"launches\":%llu,\"kernel_ns\":%llu,"
           "\"wall_ns\":%llu,\"event_ms\":%.6f}\n",
           command, result_name(result), (unsigned long long)options->count,
           (unsigned long long)options->ns, (unsigned long long)wall_ns, (double)event_ms);
    return result == CUDA_SUCCESS ? 0 : 1;
}

static CUresult spin(const struct options *options, const struct kernels *kernels,
                     CUstream stream) {
    CUresult result = CUDA_SUCCESS;
    for (uint64_t i = 0; i < options->count && result == CUDA_SUCCESS; i++) {
        result = launch_busy(options, kernels, stream);
        if (result == CUDA_SUCCESS && options->sync_every != 0 &&
            (i + 1) % options->sync_every == 0) {
            result = driver.cuStreamSynchronize(stream);
        }
    }
    return result;
}

CUresult capture_busy(const struct options *options, const struct kernels *kernels, uint64_t count,
                      CUstream stream, CUgraphExec *executable) {
    CUgraph graph = NULL;
    CUresult result = driver.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    for (uint64_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = launch_busy(options, kernels, stream);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuStreamEndCapture(stream, &graph);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuGraphInstantiateWithFlags(executable, graph, 0);
    }
    if (graph != NULL) {
        driver.cuGraphDestroy(graph);
    }
    return result;
}

static int measure(const char *command, const struct options *options, int as_graph) {
    struct kernels kernels;
    CUstream stream = NULL;
    CUevent begin = NULL, end = NULL;
    CUgraphExec executable = NULL;
    float event_ms = 0;
    CUresult result = driver_start(options->device);
    if (result == CUDA_SUCCESS) {
        result = kernels_load(&kernels);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuEventCreate(&begin, CU_EVENT_DEFAULT);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuEventCreate(&end, CU_EVENT_DEFAULT);
    }
    if (result == CUDA_SUCCESS && as_graph) {
        result = capture_busy(options, &kernels, options->count, stream, &executable);
    }
    uint64_t start = now_ns();
    if (result == CUDA_SUCCESS) {
        result = driver.cuEventRecord(begin, stream);
    }
    if (result == CUDA_SUCCESS) {
        result =
            as_graph ? driver.cuGraphLaunch(executable, stream) : spin(options, &kernels, stream);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuEventRecord(end, stream);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuStreamSynchronize(stream);
    }
    uint64_t wall = now_ns() - start;
    if (result == CUDA_SUCCESS) {
        result = driver.cuEventElapsedTime(&event_ms, begin, end);
    }
    if (executable != NULL) {
        driver.cuGraphExecDestroy(executable);
    }
    if (stream != NULL) {
        driver.cuStreamDestroy_v2(stream);
    }
    return report(command, result, options, wall, event_ms);
}

int command_spin(const struct options *options) {
    return measure("spin", options, 0);
}

int command_graph(const struct options *options) {
    return measure("graph", options, 1);
}

int command_fault(const struct options *options) {
    struct kernels kernels;
    uint64_t nowhere = 1 << 12, count = 1;
    uint32_t value = 1;
    void *parameters[] = {&nowhere, &value, &count};
    CUresult result = driver_start(options->device);
    if (result == CUDA_SUCCESS) {
        result = kernels_load(&kernels);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuLaunchKernel(kernels.fill, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuStreamSynchronize(NULL);
    }
    return report("fault", result, options, 0, 0);
}
