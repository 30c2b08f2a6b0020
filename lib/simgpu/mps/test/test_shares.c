/* What clients of one server get of a GPU's multiprocessors, by the machine's own figures on a virtual clock. */
#define _GNU_SOURCE
#include "simgpu/mps/test/daemon.h"

#include <string.h>
#include <unistd.h>

#define MS 1000000ull
#define CLIENTS 3u
#define MULTIPROCESSORS 10u /* of the machine of setting.h */

static struct sg_instance seen;

/* Has a kernel of 10 s that fills the GPU. */
static int compute(int channel) {
    uint64_t ns = 10000 * MS;
    void *params[] = {&ns};
    CUcontext ctx;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    OK(cuLaunchKernel(cuda_kernel("divvy_busy_ns"), MULTIPROCESSORS, 1, 1, 32, 1, 1, 0, NULL,
                      params, NULL));
    worker_tell(channel, sg_driver.instance.id);
    worker_hear(channel);
    return 0;
}

static int compute_outside(int channel) {
    CHECK_EQUAL(unsetenv("CUDA_MPS_PIPE_DIRECTORY"), 0);
    return compute(channel);
}

static struct worker start(int (*body)(int channel), const char *percentage, uint32_t *slot) {
    CHECK_EQUAL(setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percentage, 1), 0);
    struct worker worker = worker_start(body, 0);
    *slot = (uint32_t)worker_hear(worker.channel);
    return worker;
}

/* Percentages and how many milliseconds of the whole GPU each has of 100; the last of one that is no client. */
struct division {
    const char *percentages[CLIENTS];
    uint64_t wanted[CLIENTS], outside;
    bool has_outside;
};

static void check(const struct division *division) {
    struct worker workers[CLIENTS + 1];
    uint32_t slots[CLIENTS + 1], count = 0;

    while (count < CLIENTS && division->percentages[count]) {
        workers[count] = start(compute, division->percentages[count], &slots[count]);
        count++;
    }
    if (division->has_outside) {
        workers[count] = start(compute_outside, "", &slots[count]);
        count++;
    }
    sg_clock_move(&seen, 100 * MS);
    sg_advance(&seen, 0, sg_time(&seen));
    for (uint32_t i = 0; i < count; i++) {
        bool outside = division->has_outside && i == count - 1;
        uint64_t wanted = outside ? division->outside : division->wanted[i];
        uint64_t got = sg_channel(&seen, slots[i], 0)->sm_ns / MULTIPROCESSORS;
        /* Within one time slice, as the turns of 100 ms need not come out even. */
        CHECK(got + MS >= wanted * MS && got <= wanted * MS + MS);
    }
    while (count-- > 0) {
        worker_kill(&workers[count]);
    }
}

static void virtual_clock(sim_machine *machine) {
    machine->virtual_clock = 1;
}

int main(int argc, char **argv) {
    static const struct division divisions[] = {
        {.percentages = {"30", "70"}, .wanted = {30, 70}},
        {.percentages = {"10", "20", "70"}, .wanted = {10, 20, 70}},
        {.percentages = {"30"}, .wanted = {30}},
        {.percentages = {"100", "50"}, .wanted = {66, 33}},
        {.percentages = {"20", "30"}, .wanted = {10, 15}, .outside = 50, .has_outside = true},
    };

    (void)argc;
    DAEMON_MAIN(argv);
    daemon_machine(virtual_clock, 48);
    CHECK_EQUAL(sg_open(&seen, getenv("DIVVY_SIMGPU"), "", false), 0);
    pid_t daemon = daemon_start();
    for (size_t i = 0; i < sizeof divisions / sizeof divisions[0]; i++) {
        check(&divisions[i]);
    }
    daemon_end(daemon);
    return 0;
}
