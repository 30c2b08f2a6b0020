/* The command that allocates memory of random sizes, goes through it and gives it back, until it is ended. */
#include "options.h"
#include "stop.h"
#include "touch.h"

#include <stdio.h>
#include <unistd.h>

#define LIVE_MOST 256u
#define TELL_EVERY 64u

struct churner {
    const struct options *options;
    struct touching touching;
    CUstream stream;
    struct {
        CUdeviceptr pointer;
        uint64_t bytes;
    } live[LIVE_MOST];
    unsigned count;
    uint64_t random, allocations, refused;
};

static uint64_t next_random(struct churner *churner) {
    uint64_t x = churner->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return churner->random = x;
}

static CUresult free_one(struct churner *churner) {
    unsigned i = (unsigned)(next_random(churner) % churner->count);
    CUdeviceptr gone = churner->live[i].pointer;
    churner->live[i] = churner->live[--churner->count];
    return driver.cuMemFree_v2(gone);
}

static CUresult go_through(struct churner *churner, unsigned i) {
    struct touched what = {.address = churner->live[i].pointer,
                           .bytes = churner->live[i].bytes,
                           .ns = churner->options->ns,
                           .reads = 1,
                           .writes = 1};
    CUresult result = touch(churner->touching.sweep, what, churner->stream);
    return result == CUDA_SUCCESS ? driver.cuStreamSynchronize(churner->stream) : result;
}

static CUresult allocate_one(struct churner *churner) {
    uint64_t bytes = next_random(churner) % churner->options->bytes + 4096;
    CUdeviceptr pointer = 0;
    CUresult result = driver.cuMemAlloc_v2(&pointer, bytes);
    churner->allocations++;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        churner->refused++;
        return churner->count == 0 ? CUDA_SUCCESS : free_one(churner);
    }
    if (result == CUDA_SUCCESS) {
        churner->live[churner->count].pointer = pointer;
        churner->live[churner->count].bytes = bytes;
        result = go_through(churner, churner->count++);
    }
    return result;
}

static void tell(const struct churner *churner, CUresult result, const char *what) {
    printf("{\"%s\":\"churn\",\"result\":\"%s\",\"pid\":%d,\"at_ns\":%llu,\"allocations\":%llu,"
           "\"refused\":%llu}\n",
           what, result_name(result), (int)getpid(), (unsigned long long)now_ns(),
           (unsigned long long)churner->allocations, (unsigned long long)churner->refused);
}

static CUresult churn(struct churner *churner) {
    uint64_t most = churner->options->count;
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && !stopped() && (most == 0 || churner->allocations < most)) {
        uint64_t before = churner->allocations;
        int full = churner->count == LIVE_MOST;
        if (full || (churner->count > 0 && next_random(churner) % 16 < 7)) {
            result = free_one(churner);
        } else {
            result = allocate_one(churner);
        }
        if (result == CUDA_SUCCESS && churner->count > 0 && next_random(churner) % 4 == 0) {
            result = go_through(churner, (unsigned)(next_random(churner) % churner->count));
        }
        if (churner->allocations != before && churner->allocations % TELL_EVERY == 0) {
            tell(churner, result, "phase");
        }
    }
    return result;
}

int command_churn(const struct options *options) {
    static struct churner churner;
    churner.options = options;
    churner.random = options->seed * 0x9e3779b97f4a7c15u + 1;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    stop_on_signals();
    CUresult result = driver_start(options->device);
    if (result == CUDA_SUCCESS) {
        result = driver.cuStreamCreate(&churner.stream, CU_STREAM_NON_BLOCKING);
    }
    if (result == CUDA_SUCCESS) {
        result = touching_load(&churner.touching);
    }
    if (result == CUDA_SUCCESS && options->bytes > 0) {
        result = churn(&churner);
    }
    while (churner.count > 0 && result == CUDA_SUCCESS) {
        result = free_one(&churner);
    }
    tell(&churner, result, "command");
    return result == CUDA_SUCCESS ? 0 : 1;
}
