/* The command that gives the GPU work until it is stopped. */
#include "launch.h"
#include "stop.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BEAT_NS 100000000u

/* What one thread does. */
struct load {
    const struct options *options;
    struct kernels kernels;
    CUfunction *different;
    CUstream *streams;
    pthread_t thread;
    CUresult result;
    bool tells; /* of its progress */
    CUgraphExec executable;
    uint64_t launches; /* given to the driver: kernels or graphs */
    uint64_t finished; /* of these, known to have ended */
    uint64_t begin, beat, turn;
};

static CUresult prepare(struct load *load) {
    const struct options *options = load->options;
    load->streams = calloc(options->streams, sizeof(CUstream));
    CUresult result =
        load->streams != NULL ? driver_start(options->device) : CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < options->streams && result == CUDA_SUCCESS; i++) {
        result = driver.cuStreamCreate(&load->streams[i], CU_STREAM_NON_BLOCKING);
    }
    if (result == CUDA_SUCCESS && options->graph != 0) {
        result = capture_busy(options, &load->kernels, options->graph, load->streams[0],
                              &load->executable);
    }
    return result;
}

static CUresult finish(struct load *load) {
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < load->options->streams && result == CUDA_SUCCESS; i++) {
        result = driver.cuStreamSynchronize(load->streams[i]);
    }
    if (result == CUDA_SUCCESS) {
        load->finished = load->launches;
    }
    return result;
}

/* Prints a line of progress. For a change of phase, `now` is a moment after the change. */
static void tell(struct load *load, const char *what, uint64_t now) {
    load->beat = now + BEAT_NS;
    if (!load->tells) {
        return;
    }
    printf("{\"at_ns\":%llu,\"pid\":%d,\"phase\":\"%s\",\"launches\":%llu,\"finished\":%llu}\n",
           (unsigned long long)now, (int)getpid(), what, (unsigned long long)load->launches,
           (unsigned long long)load->finished);
}

/* Pauses when it is time, after the GPU has finished all launches. */
static CUresult phase(struct load *load, uint64_t now) {
    uint64_t pause_ns = load->options->pause_ms * 1000000u;
    if (load->turn == 0 || now < load->turn) {
        return CUDA_SUCCESS;
    }
    CUresult result = finish(load);
    now = now_ns();
    tell(load, "pause", now);
    sleep_until(now + pause_ns);
    now = now_ns();
    load->turn = now + load->options->work_ms * 1000000u;
    tell(load, "work", now);
    return result;
}

static CUresult launch(struct load *load) {
    const struct options *options = load->options;
    CUstream stream = load->streams[load->launches % options->streams];
    CUfunction kernel = load->different[load->launches % options->different];
    CUresult result = load->executable != NULL ? driver.cuGraphLaunch(load->executable, stream)
                      : options->different > 1 ? launch_one(options, kernel, stream)
                                               : launch_busy(options, &load->kernels, stream);
    if (result == CUDA_SUCCESS) {
        load->launches++;
        if (options->sync_every != 0 && load->launches % options->sync_every == 0) {
            result = finish(load);
        }
    }
    return result;
}

static CUresult work(struct load *load) {
    const struct options *options = load->options;
    uint64_t now = load->begin = now_ns();
    uint64_t end = options->seconds == 0 ? UINT64_MAX : now + options->seconds * 1000000000u;
    load->turn = options->work_ms == 0 ? 0 : now + options->work_ms * 1000000u;
    tell(load, "work", now);
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && !stopped() && now < end) {
        result = phase(load, now);
        if (result == CUDA_SUCCESS) {
            result = launch(load);
        }
        now = now_ns();
        if (now >= load->beat) {
            tell(load, "work", now);
        }
    }
    return result;
}

static void *run(void *arg) {
    struct load *load = arg;
    load->result = prepare(load);
    if (load->result == CUDA_SUCCESS) {
        load->result = work(load);
    }
    return NULL;
}

/* Runs all threads, the first of which is this one; sums up in the first. */
static void run_all(struct load *loads, unsigned threads) {
    for (unsigned i = 1; i < threads; i++) {
        loads[i] = loads[0];
        loads[i].tells = false;
        if (pthread_create(&loads[i].thread, NULL, run, &loads[i]) != 0) {
            loads[0].result = CUDA_ERROR_OUT_OF_MEMORY;
            return;
        }
    }
    run(&loads[0]);
    for (unsigned i = 1; i < threads; i++) {
        pthread_join(loads[i].thread, NULL);
        loads[0].launches += loads[i].launches;
        loads[0].finished += loads[i].finished;
        if (loads[0].result == CUDA_SUCCESS) {
            loads[0].result = loads[i].result;
        }
    }
}

/* Does not wait at the end for launches that the GPU has not finished, which may take minutes. */
int command_load(const struct options *options) {
    struct load *loads = calloc(options->threads, sizeof *loads), load = {.options = options};
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    stop_on_signals();
    load.different = calloc(options->different, sizeof *load.different);
    load.tells = true;
    load.result = loads == NULL || load.different == NULL ? CUDA_ERROR_OUT_OF_MEMORY
                                                          : driver_start(options->device);
    if (load.result == CUDA_SUCCESS) {
        load.result = kernels_load(&load.kernels);
    }
    if (load.result == CUDA_SUCCESS && options->different > 1) {
        load.result = kernels_different(load.different, options->different, 0);
    }
    if (load.result == CUDA_SUCCESS) {
        loads[0] = load;
        run_all(loads, options->threads);
        load = loads[0];
    }
    printf("{\"command\":\"load\",\"result\":\"%s\",\"pid\":%d,\"launches\":%llu,\"finished\":%llu,"
           "\"kernel_ns\":%llu,\"graph\":%u,\"begin_ns\":%llu,\"end_ns\":%llu}\n",
           result_name(load.result), (int)getpid(), (unsigned long long)load.launches,
           (unsigned long long)load.finished, (unsigned long long)options->ns, options->graph,
           (unsigned long long)load.begin, (unsigned long long)now_ns());
    fflush(stdout);
    _exit(load.result == CUDA_SUCCESS ? 0 : 1);
}
