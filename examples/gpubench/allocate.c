/* The commands that allocate: info, alloc, hold, copy. */
#include "memory.h"
#include "options.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static int report(const char *command, CUresult result, uint64_t done, uint64_t bytes) {
    size_t free_bytes = 0, total_bytes = 0;
    if (driver.cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS) {
        free_bytes = total_bytes = 0;
    }
    printf("{\"command\":\"%s\",\"pid\":%d,\"result\":\"%s\",\"code\":%d,\"allocations\":%llu,"
           "\"allocated_bytes\":%llu,\"free_bytes\":%zu,\"total_bytes\":%zu}\n",
           command, getpid(), result_name(result), (int)result, (unsigned long long)done,
           (unsigned long long)bytes, free_bytes, total_bytes);
    fflush(stdout);
    return result == CUDA_SUCCESS ? 0 : 1;
}

int command_info(const struct options *options) {
    CUresult result = driver.cuInit(0);
    int version = 0, count = 0;
    if (result == CUDA_SUCCESS) {
        result = driver.cuDriverGetVersion(&version);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuDeviceGetCount(&count);
    }
    (void)options;
    printf("{\"command\":\"info\",\"result\":\"%s\",\"cuda_version\":%d,\"devices\":[",
           result_name(result), version);
    for (int i = 0; i < count && result == CUDA_SUCCESS; i++) {
        CUdevice device;
        char name[128] = "";
        size_t bytes = 0;
        result = driver.cuDeviceGet(&device, i);
        if (result == CUDA_SUCCESS) {
            result = driver.cuDeviceGetName(name, sizeof name, device);
        }
        if (result == CUDA_SUCCESS) {
            result = driver.cuDeviceTotalMem_v2(&bytes, device);
        }
        printf("%s{\"ordinal\":%d,\"name\":\"%s\",\"total_bytes\":%zu}", i ? "," : "", i, name,
               bytes);
    }
    puts("]}");
    return result == CUDA_SUCCESS ? 0 : 1;
}

int command_alloc(const struct options *options) {
    enum kind kind = kind_named(options->kind);
    struct memory *memory = calloc(options->count, sizeof *memory);
    if (memory == NULL) {
        return 2;
    }
    CUresult result = driver_start(options->device);
    uint64_t done = 0;
    while (result == CUDA_SUCCESS && done < options->count) {
        result = memory_allocate(kind, options->bytes, options->device, &memory[done]);
        done += result == CUDA_SUCCESS;
    }
    int status = report("alloc", result, done, done * options->bytes);
    for (uint64_t i = 0; i < done; i++) {
        if (memory_free(&memory[i]) != CUDA_SUCCESS) {
            status = 1;
        }
    }
    free(memory);
    return status;
}

/* Waits for SIGTERM or SIGINT, for the end of standard input, or for the time given, whichever is
 * first. */
static void wait_for_end(uint64_t seconds, int signals) {
    struct pollfd events[2] = {{.fd = signals, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    uint64_t end = now_ns() + seconds * 1000000000u;
    char discard[256];
    for (;;) {
        uint64_t now = now_ns();
        if (seconds != 0 && now >= end) {
            return;
        }
        int wait = seconds == 0 ? -1 : (int)((end - now) / 1000000u) + 1;
        if (poll(events, 2, wait) <= 0) {
            continue;
        }
        if (events[0].revents != 0) {
            return;
        }
        if (events[1].revents != 0 && read(0, discard, sizeof discard) <= 0) {
            return;
        }
    }
}

int command_hold(const struct options *options) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signals = signalfd(-1, &set, SFD_CLOEXEC);
    struct memory memory;
    CUresult result = driver_start(options->device);
    if (result == CUDA_SUCCESS) {
        result =
            memory_allocate(kind_named(options->kind), options->bytes, options->device, &memory);
    }
    int status = report("hold", result, result == CUDA_SUCCESS, options->bytes);
    if (result == CUDA_SUCCESS) {
        wait_for_end(options->seconds, signals);
        status = memory_free(&memory) == CUDA_SUCCESS ? 0 : 1;
    }
    close(signals);
    return status;
}

static CUresult copy_around(unsigned char *host, unsigned char *back, uint64_t bytes,
                            uint64_t *ns) {
    CUdeviceptr first = 0, second = 0;
    CUresult result = driver.cuMemAlloc_v2(&first, bytes);
    if (result == CUDA_SUCCESS) {
        result = driver.cuMemAlloc_v2(&second, bytes);
    }
    uint64_t start = now_ns();
    if (result == CUDA_SUCCESS) {
        result = driver.cuMemcpyHtoD_v2(first, host, bytes);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuMemcpyDtoD_v2(second, first, bytes);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuMemcpyDtoH_v2(back, second, bytes);
    }
    *ns = now_ns() - start;
    if (first != 0) {
        driver.cuMemFree_v2(first);
    }
    if (second != 0) {
        driver.cuMemFree_v2(second);
    }
    return result;
}

int command_copy(const struct options *options) {
    unsigned char *host = malloc(options->bytes), *back = calloc(1, options->bytes);
    if (host == NULL || back == NULL) {
        free(host);
        free(back);
        fputs("gpubench: no host memory for the copy\n", stderr);
        return 2;
    }
    uint64_t state = options->seed, ns = 0;
    for (uint64_t i = 0; i < options->bytes; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        host[i] = (unsigned char)(state >> 56);
    }
    CUresult result = driver_start(options->device);
    if (result == CUDA_SUCCESS) {
        result = copy_around(host, back, options->bytes, &ns);
    }
    int equal = result == CUDA_SUCCESS && memcmp(host, back, options->bytes) == 0;
    printf("{\"command\":\"copy\",\"result\":\"%s\",\"bytes\":%llu,\"equal\":%s,\"ns\":%llu}\n",
           result_name(result), (unsigned long long)options->bytes, equal ? "true" : "false",
           (unsigned long long)ns);
    free(host);
    free(back);
    return equal ? 0 : 1;
}
