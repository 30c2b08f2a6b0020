/* The command that answers requests. They come at random moments, whether or not the earlier ones
 * have been answered (open loop), and one thread answers them in order. */
#include "launch.h"
#include "stop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct request {
    uint64_t arrival; /* ns after the beginning; the same for equal seeds, rates and seconds */
    uint64_t launch;  /* CLOCK_MONOTONIC ns just before its first launch */
    uint64_t done;    /* and when its synchronisation has returned */
    int first;        /* no other request was waiting or being answered when it came */
};

struct service {
    const struct options *options;
    struct kernels kernels;
    CUstream stream;
    struct request *requests;
    uint64_t count, answered;
    uint64_t begin; /* CLOCK_MONOTONIC ns */
};

/* Uniform in (0, 1]; the generator is splitmix64. */
static double uniform(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)(((z ^ (z >> 31)) >> 11) + 1) * 0x1p-53;
}

/* A Poisson process: the times between arrivals are distributed exponentially. */
static int arrivals(struct service *service) {
    const struct options *options = service->options;
    uint64_t state = options->seed, room = 0;
    double at = 0, end = (double)options->seconds * 1e9, mean = 1e9 / (double)options->rate;
    for (;;) {
        at -= mean * log(uniform(&state));
        if (at >= end) {
            return 1;
        }
        if (service->count == room) {
            room = room * 2 + 1024;
            struct request *more = realloc(service->requests, room * sizeof *more);
            if (more == NULL) {
                return 0;
            }
            service->requests = more;
        }
        service->requests[service->count++] = (struct request){.arrival = (uint64_t)at};
    }
}

static CUresult answer(struct service *service) {
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < service->options->kernels && result == CUDA_SUCCESS; i++) {
        result = launch_busy(service->options, &service->kernels, service->stream);
    }
    return result == CUDA_SUCCESS ? driver.cuStreamSynchronize(service->stream) : result;
}

/* Answers one request that is not counted, to warm up. */
static CUresult prepare(struct service *service) {
    CUresult result = driver_start(service->options->device);
    if (result == CUDA_SUCCESS) {
        result = kernels_load(&service->kernels);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuStreamCreate(&service->stream, CU_STREAM_NON_BLOCKING);
    }
    return result == CUDA_SUCCESS ? answer(service) : result;
}

static CUresult serve(struct service *service) {
    CUresult result = CUDA_SUCCESS;
    uint64_t free_since = service->begin = now_ns();
    printf("{\"command\":\"serve\",\"pid\":%d,\"begin_ns\":%llu}\n", (int)getpid(),
           (unsigned long long)service->begin);
    fflush(stdout);
    while (result == CUDA_SUCCESS && service->answered < service->count) {
        struct request *request = &service->requests[service->answered];
        uint64_t arrival = service->begin + request->arrival;
        sleep_until(arrival);
        if (stopped()) {
            break;
        }
        request->first = arrival >= free_since;
        request->launch = now_ns();
        result = answer(service);
        request->done = free_since = now_ns();
        service->answered += result == CUDA_SUCCESS;
    }
    return result;
}

static int ascending(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static int report(const struct service *service, CUresult result) {
    double *latency = calloc(service->answered + 1, sizeof *latency);
    if (latency == NULL) {
        return 1;
    }
    for (uint64_t i = 0; i < service->answered; i++) {
        const struct request *r = &service->requests[i];
        latency[i] = (double)(r->done - service->begin - r->arrival) / 1e6;
        printf("{\"arrival_ns\":%llu,\"launched_ns\":%llu,\"done_ns\":%llu,\"first\":%s}\n",
               (unsigned long long)(service->begin + r->arrival), (unsigned long long)r->launch,
               (unsigned long long)r->done, r->first ? "true" : "false");
    }
    qsort(latency, service->answered, sizeof *latency, ascending);
    uint64_t last = service->answered == 0 ? 0 : service->answered - 1;
    printf("{\"command\":\"serve\",\"result\":\"%s\",\"pid\":%d,\"requests\":%llu,"
           "\"answered\":%llu,\"begin_ns\":%llu,\"end_ns\":%llu,\"p50_ms\":%.3f,\"p90_ms\":%.3f,"
           "\"p99_ms\":%.3f,\"max_ms\":%.3f}\n",
           result_name(result), (int)getpid(), (unsigned long long)service->count,
           (unsigned long long)service->answered, (unsigned long long)service->begin,
           (unsigned long long)now_ns(), latency[last / 2], latency[last * 9 / 10],
           latency[last * 99 / 100], latency[last]);
    free(latency);
    return result == CUDA_SUCCESS ? 0 : 1;
}

int command_serve(const struct options *options) {
    if (options->seconds == 0) {
        fputs("gpubench: serve needs --seconds 1 or more\n", stderr);
        return 2;
    }
    struct service service = {.options = options};
    stop_on_signals();
    CUresult result = arrivals(&service) ? prepare(&service) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        result = serve(&service);
    }
    int status = report(&service, result);
    free(service.requests);
    return status;
}
