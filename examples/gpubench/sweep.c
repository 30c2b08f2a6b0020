/* The command that goes through its memory again and again, with pauses, and looks at it at the end. */
#include "memory.h"
#include "options.h"
#include "stop.h"
#include "touch.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MS 1000000ull
#define GRANULE (2ull << 20)

struct times {
    uint64_t *list;
    size_t count, room;
};

struct sweeper {
    const struct options *options;
    struct touching touching;
    CUstream stream;
    struct memory *memory;
    unsigned pieces; /* that were allocated */
    uint64_t piece;  /* bytes of each */
    uint64_t steps, changed;
    uint64_t allocated_ns, marked_ns, compared_ns, begin;
    struct times all;   /* of each step, from the moment at which it was due */
    struct times first; /* of the first step after each pause, without its own GPU time */
};

static void keep(struct times *times, uint64_t ns) {
    if (times->count == times->room) {
        size_t room = times->room == 0 ? 64 : times->room * 2;
        uint64_t *list = realloc(times->list, room * sizeof *list);
        if (list == NULL) {
            return;
        }
        times->list = list;
        times->room = room;
    }
    times->list[times->count++] = ns;
}

static int ascending(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* Sorts times. */
static void order(struct times *times) {
    if (times->count != 0) {
        qsort(times->list, times->count, sizeof *times->list, ascending);
    }
}

/* That of sorted times which so many hundredths do not exceed, in ms. */
static double at(const struct times *times, size_t hundredths) {
    if (times->count == 0) {
        return 0;
    }
    size_t place = (times->count - 1) * hundredths / 100;
    return (double)times->list[place] / 1e6;
}

static CUresult allocate(struct sweeper *sweeper) {
    const struct options *options = sweeper->options;
    uint64_t begin = now_ns();
    CUresult result = CUDA_SUCCESS;
    sweeper->piece = options->bytes / options->pieces / 4096 * 4096;
    sweeper->memory = calloc(options->pieces, sizeof *sweeper->memory);
    if (sweeper->memory == NULL || sweeper->piece == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    while (result == CUDA_SUCCESS && sweeper->pieces < options->pieces) {
        result = memory_allocate(kind_named(options->kind), sweeper->piece, options->device,
                                 &sweeper->memory[sweeper->pieces]);
        sweeper->pieces += result == CUDA_SUCCESS;
    }
    sweeper->allocated_ns = now_ns() - begin;
    begin = now_ns();
    for (unsigned i = 0; i < sweeper->pieces && result == CUDA_SUCCESS; i++) {
        result = marks_write(sweeper->memory[i].pointer, sweeper->piece, options->seed + i);
    }
    sweeper->marked_ns = now_ns() - begin;
    return result;
}

static CUresult prepare(struct sweeper *sweeper) {
    enum kind kind = kind_named(sweeper->options->kind);
    if (kind != KIND_LINEAR && kind != KIND_MANAGED && kind != KIND_PITCH && kind != KIND_ASYNC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = driver_start(sweeper->options->device);
    if (result == CUDA_SUCCESS) {
        result = driver.cuStreamCreate(&sweeper->stream, CU_STREAM_NON_BLOCKING);
    }
    if (result == CUDA_SUCCESS) {
        result = touching_load(&sweeper->touching);
    }
    return result == CUDA_SUCCESS ? allocate(sweeper) : result;
}

/* Goes through all of the memory once and waits for it. */
static CUresult step(struct sweeper *sweeper) {
    const struct options *options = sweeper->options;
    unsigned places = options->scatter / options->pieces;
    CUfunction kernel = places == 0 ? sweeper->touching.sweep : sweeper->touching.scatter;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < sweeper->pieces && result == CUDA_SUCCESS; i++) {
        struct touched what = {.address = sweeper->memory[i].pointer,
                               .bytes = sweeper->piece,
                               .ns = options->ns / options->pieces,
                               .reads = places == 0 ? 1 : places,
                               .writes = places == 0 ? 1 : places,
                               .seed = places == 0 ? 0 : (unsigned)sweeper->steps};
        result = touch(kernel, what, sweeper->stream);
    }
    return result == CUDA_SUCCESS ? driver.cuStreamSynchronize(sweeper->stream) : result;
}

/* A number of steps without a pause. */
static CUresult burst(struct sweeper *sweeper, uint64_t due) {
    const struct options *options = sweeper->options;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < options->steps && result == CUDA_SUCCESS && !stopped(); i++) {
        uint64_t begin = now_ns();
        result = step(sweeper);
        uint64_t end = now_ns();
        if (result != CUDA_SUCCESS) {
            break;
        }
        keep(&sweeper->all, end - (i == 0 && due != 0 ? due : begin));
        if (i == 0) {
            keep(&sweeper->first, end - begin > options->ns ? end - begin - options->ns : 0);
        }
        printf("{\"step\":%llu,\"pid\":%d,\"begin_ns\":%llu,\"end_ns\":%llu,\"wall_ns\":%llu,"
               "\"first\":%s}\n",
               (unsigned long long)sweeper->steps, (int)getpid(), (unsigned long long)begin,
               (unsigned long long)end, (unsigned long long)(end - begin),
               i == 0 ? "true" : "false");
        sweeper->steps++;
    }
    return result;
}

static void tell(const char *phase, uint64_t now) {
    printf("{\"phase\":\"%s\",\"pid\":%d,\"at_ns\":%llu}\n", phase, (int)getpid(),
           (unsigned long long)now);
}

static CUresult work(struct sweeper *sweeper) {
    const struct options *options = sweeper->options;
    CUresult result = CUDA_SUCCESS;
    char byte;
    if (options->wait != 0) {
        tell("ready", now_ns());
        if (read(STDIN_FILENO, &byte, 1) < 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    sweeper->begin = now_ns();
    tell("work", sweeper->begin);
    uint64_t due = sweeper->begin;
    uint64_t end =
        options->seconds == 0 ? UINT64_MAX : sweeper->begin + options->seconds * 1000 * MS;
    for (uint64_t i = 0; (options->count == 0 || i < options->count) && result == CUDA_SUCCESS;
         i++) {
        sleep_until(due);
        if (stopped() || now_ns() >= end) {
            break;
        }
        result = burst(sweeper, options->period_ms == 0 ? 0 : due);
        due = options->period_ms != 0 ? due + options->period_ms * MS
                                      : now_ns() + options->pause_ms * MS;
    }
    return result;
}

static CUresult compare(struct sweeper *sweeper) {
    CUresult result = CUDA_SUCCESS;
    uint64_t begin = now_ns();
    for (unsigned i = 0; i < sweeper->pieces && result == CUDA_SUCCESS; i++) {
        result = marks_compare(sweeper->memory[i].pointer, sweeper->piece,
                               sweeper->options->seed + i, &sweeper->changed);
    }
    sweeper->compared_ns = now_ns() - begin;
    return result;
}

static int report(struct sweeper *sweeper, CUresult result, uint64_t end) {
    struct times *all = &sweeper->all, *first = &sweeper->first;
    size_t free_bytes = 0, total_bytes = 0;
    if (driver.cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS) {
        free_bytes = total_bytes = 0;
    }
    order(all);
    order(first);
    printf("{\"command\":\"sweep\",\"result\":\"%s\",\"code\":%d,\"pid\":%d,"
           "\"allocated_bytes\":%llu,\"total_bytes\":%zu,\"steps\":%llu,\"equal\":%s,"
           "\"changed_bytes\":%llu,\"marks\":%llu,",
           result_name(result), (int)result, (int)getpid(),
           (unsigned long long)(sweeper->piece * sweeper->pieces), total_bytes,
           (unsigned long long)sweeper->steps,
           result == CUDA_SUCCESS && sweeper->changed == 0 ? "true" : "false",
           (unsigned long long)sweeper->changed,
           (unsigned long long)(sweeper->pieces * ((sweeper->piece + GRANULE - 1) / GRANULE)));
    printf("\"allocate_ns\":%llu,\"mark_ns\":%llu,\"compare_ns\":%llu,\"begin_ns\":%llu,"
           "\"end_ns\":%llu,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f,"
           "\"first_p50_ms\":%.3f,\"first_max_ms\":%.3f}\n",
           (unsigned long long)sweeper->allocated_ns, (unsigned long long)sweeper->marked_ns,
           (unsigned long long)sweeper->compared_ns, (unsigned long long)sweeper->begin,
           (unsigned long long)end, at(all, 50), at(all, 99), at(all, 100), at(first, 50),
           at(first, 100));
    return result == CUDA_SUCCESS && sweeper->changed == 0 ? 0 : 1;
}

int command_sweep(const struct options *options) {
    struct sweeper sweeper = {.options = options};
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    stop_on_signals();
    CUresult result = prepare(&sweeper);
    if (result == CUDA_SUCCESS) {
        result = work(&sweeper);
    }
    uint64_t end = now_ns();
    if (result == CUDA_SUCCESS) {
        result = compare(&sweeper);
    }
    int status = report(&sweeper, result, end);
    for (unsigned i = 0; i < sweeper.pieces; i++) {
        memory_free(&sweeper.memory[i]);
    }
    free(sweeper.memory);
    free(sweeper.all.list);
    free(sweeper.first.list);
    return status;
}
