/* Two processes on one GPU: each gets half of its time while both compute, and what an event
 * measures is the time that passed, the neighbour's slices included. */
#define _GNU_SOURCE
#include "simgpu/cuda/test/cuda.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000ull
#define EVENTS 1000u /* two records */

/* What a process measured of its own work. */
struct measured {
    float ms;
    uint64_t gpu_ns, from, given, to;
};

static int compute(int channel, uint64_t work) {
    struct measured out;
    CUevent start, end;
    CUcontext ctx;
    char go;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    cuda_kernel("divvy_busy_ns");
    CHECK_EQUAL(write(channel, "r", 1), 1);
    CHECK_EQUAL(read(channel, &go, 1), 1);
    out.from = sg_now();
    OK(cuEventRecord(start, NULL));
    OK(cuda_busy(NULL, work));
    OK(cuEventRecord(end, NULL));
    out.given = sg_now();
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&out.ms, start, end));
    out.to = sg_now();
    struct sg_instance *in = &sg_driver.instance;
    out.gpu_ns = sg_channel(in, in->id, 0)->executed;
    CHECK_EQUAL(write(channel, &out, sizeof out), (ssize_t)sizeof out);
    CHECK_EQUAL(read(channel, &go, 1), 1);
    return 0;
}

static pid_t start(int *channel, uint64_t work) {
    int ends[2];
    char ready;

    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        _exit(compute(ends[1], work));
    }
    close(ends[1]);
    *channel = ends[0];
    CHECK_EQUAL(read(*channel, &ready, 1), 1);
    return child;
}

static void end(pid_t child, int channel) {
    int status;

    CHECK_EQUAL(write(channel, "e", 1), 1);
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    close(channel);
}

/* What lay between the records of start and end: the process may have had no CPU. */
static float lag(const struct measured *m) {
    return (float)(m->given - m->from) / (float)MS;
}

int main(void) {
    struct measured a, b;
    sim_machine machine;
    int first, second;

    setting_describe(&machine);
    setting_make(&machine);
    pid_t one = start(&first, 60 * MS), two = start(&second, 100 * MS);
    CHECK(write(first, "g", 1) == 1 && write(second, "g", 1) == 1);
    CHECK_EQUAL(read(first, &a, sizeof a), (ssize_t)sizeof a);
    CHECK_EQUAL(read(second, &b, sizeof b), (ssize_t)sizeof b);
    CHECK_EQUAL(a.gpu_ns, 60 * MS + EVENTS);
    CHECK_EQUAL(b.gpu_ns, 100 * MS + EVENTS);
    /* The starts may lie apart by what a process waits for a CPU; but the GPU never does two things
     * at once, and never idles while it has work. */
    CHECK((a.to > b.to ? a.to : b.to) - (a.from < b.from ? a.from : b.from) >= 160 * MS);
    CHECK(a.ms >= 60.0f && a.ms < 160.5f + lag(&a));
    CHECK(b.ms >= 100.0f && b.ms < 160.5f + lag(&b));
    if (a.given < b.from + 10 * MS && b.given < a.from + 10 * MS) {
        CHECK(a.ms > 100.0f && a.ms < 131.0f);
    }
    end(one, first);
    end(two, second);
    return 0;
}
