/* Commands that tell what the way to the driver costs: step, calls, bulk and start. */
#include "launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A step: parts that copy small memory to the GPU and back, and launch kernels between. */
enum { PARTS = 4, LAUNCHES = 294, SMALL_BYTES = 16384 };

static int ascending(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* That of sorted times which so many thousandths do not exceed. */
static unsigned long long at(const uint64_t *times, uint64_t count, uint64_t thousandths) {
    return count == 0 ? 0 : times[(count - 1) * thousandths / 1000];
}

/* What all these commands need: a stream, memory of the GPU and of the host, and room for times. */
struct scene {
    struct kernels kernels;
    CUstream stream;
    CUdeviceptr device;
    unsigned char *pinned, *pageable;
    uint64_t *times, *others;
};

static CUresult set_up(const struct options *options, uint64_t bytes, struct scene *scene) {
    void *pinned = NULL;
    memset(scene, 0, sizeof *scene);
    scene->pageable = calloc(bytes, 1);
    scene->times = calloc(options->count + 1, sizeof *scene->times);
    scene->others = calloc(options->count + 1, sizeof *scene->others);
    if (scene->pageable == NULL || scene->times == NULL || scene->others == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memset(scene->pageable, 1, bytes); /* the pages are there before anything is timed */
    CUresult result = driver_start(options->device);
    if (result == CUDA_SUCCESS) {
        result = driver.cuStreamCreate(&scene->stream, CU_STREAM_NON_BLOCKING);
    }
    if (result == CUDA_SUCCESS) {
        result = kernels_load(&scene->kernels);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuMemAlloc_v2(&scene->device, bytes);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuMemHostAlloc(&pinned, bytes, 0);
    }
    scene->pinned = pinned;
    if (result == CUDA_SUCCESS) {
        memset(pinned, 2, bytes);
    }
    return result;
}

static void clear(struct scene *scene) {
    if (scene->pinned != NULL) {
        driver.cuMemFreeHost(scene->pinned);
    }
    if (scene->device != 0) {
        driver.cuMemFree_v2(scene->device);
    }
    if (scene->stream != NULL) {
        driver.cuStreamDestroy_v2(scene->stream);
    }
    free(scene->pageable);
    free(scene->times);
    free(scene->others);
}

static CUresult part(const struct options *options, const struct scene *scene, unsigned launches) {
    CUresult result =
        driver.cuMemcpyHtoDAsync_v2(scene->device, scene->pageable, SMALL_BYTES, scene->stream);
    for (unsigned i = 0; i < launches && result == CUDA_SUCCESS; i++) {
        result = launch_busy(options, &scene->kernels, scene->stream);
    }
    if (result == CUDA_SUCCESS) {
        result =
            driver.cuMemcpyDtoHAsync_v2(scene->pinned, scene->device, SMALL_BYTES, scene->stream);
    }
    return result == CUDA_SUCCESS ? driver.cuStreamSynchronize(scene->stream) : result;
}

static int end(const char *command, CUresult result) {
    printf("{\"command\":\"%s\",\"result\":\"%s\"}\n", command, result_name(result));
    return result == CUDA_SUCCESS ? 0 : 1;
}

int command_step(const struct options *options) {
    struct scene scene;
    uint64_t done = 0;
    CUresult result = set_up(options, SMALL_BYTES, &scene);
    for (; done < options->count && result == CUDA_SUCCESS; done++) {
        uint64_t begin = now_ns();
        for (unsigned i = 0; i < PARTS && result == CUDA_SUCCESS; i++) {
            result = part(options, &scene, LAUNCHES * (i + 1) / PARTS - LAUNCHES * i / PARTS);
        }
        scene.times[done] = now_ns() - begin;
    }
    for (uint64_t i = 0; i < done; i++) {
        printf("{\"step\":%llu,\"wall_ns\":%llu}\n", (unsigned long long)i,
               (unsigned long long)scene.times[i]);
    }
    clear(&scene);
    return end("step", result);
}

/* Two calls that wait for an answer: one that the driver answers by itself, and one that asks for
 * the end of a stream's work, of which there is none. */
int command_calls(const struct options *options) {
    struct scene scene;
    size_t free_bytes, total_bytes;
    CUresult result = set_up(options, SMALL_BYTES, &scene);
    for (uint64_t i = 0; i < options->count && result == CUDA_SUCCESS; i++) {
        uint64_t begin = now_ns();
        result = driver.cuMemGetInfo_v2(&free_bytes, &total_bytes);
        scene.times[i] = now_ns() - begin;
    }
    for (uint64_t i = 0; i < options->count && result == CUDA_SUCCESS; i++) {
        uint64_t begin = now_ns();
        result = driver.cuStreamSynchronize(scene.stream);
        scene.others[i] = now_ns() - begin;
    }
    if (result == CUDA_SUCCESS) {
        qsort(scene.times, options->count, sizeof *scene.times, ascending);
        qsort(scene.others, options->count, sizeof *scene.others, ascending);
        printf("{\"command\":\"calls\",\"ask_p50_ns\":%llu,\"ask_p99_ns\":%llu,"
               "\"wait_p50_ns\":%llu,\"wait_p99_ns\":%llu}\n",
               at(scene.times, options->count, 500), at(scene.times, options->count, 990),
               at(scene.others, options->count, 500), at(scene.others, options->count, 990));
    }
    clear(&scene);
    return end("calls", result);
}

/* Copies between the GPU and memory of the host that is pinned or not, one way and then the other. */
int command_bulk(const struct options *options) {
    struct scene scene;
    int pinned = strcmp(options->kind, "pinned") == 0;
    if (!pinned && strcmp(options->kind, "pageable") != 0) {
        fputs("gpubench: bulk needs --kind pinned or pageable\n", stderr);
        return 2;
    }
    CUresult result = set_up(options, options->bytes, &scene);
    unsigned char *host = pinned ? scene.pinned : scene.pageable;
    for (uint64_t i = 0; i <= options->count && result == CUDA_SUCCESS; i++) {
        uint64_t begin = now_ns();
        result = driver.cuMemcpyHtoD_v2(scene.device, host, options->bytes);
        uint64_t half = now_ns();
        if (result == CUDA_SUCCESS) {
            result = driver.cuMemcpyDtoH_v2(host, scene.device, options->bytes);
        }
        if (i > 0) { /* the first only warms up */
            scene.times[i - 1] = half - begin;
            scene.others[i - 1] = now_ns() - half;
        }
    }
    if (result == CUDA_SUCCESS) {
        qsort(scene.times, options->count, sizeof *scene.times, ascending);
        qsort(scene.others, options->count, sizeof *scene.others, ascending);
        printf("{\"command\":\"bulk\",\"bytes\":%llu,\"to_ns\":%llu,\"from_ns\":%llu}\n",
               (unsigned long long)options->bytes, at(scene.times, options->count, 500),
               at(scene.others, options->count, 500));
    }
    clear(&scene);
    return end("bulk", result);
}

int command_start(const struct options *options) {
    uint64_t begin = now_ns();
    CUresult result = driver_start(options->device);
    printf("{\"command\":\"start\",\"result\":\"%s\",\"start_ns\":%llu}\n", result_name(result),
           (unsigned long long)(now_ns() - begin));
    return result == CUDA_SUCCESS ? 0 : 1;
}
