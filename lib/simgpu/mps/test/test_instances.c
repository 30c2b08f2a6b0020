/* A daemon that serves a MIG device: what its clients see and may have, and how many there can be. */
#define _GNU_SOURCE
#include "simgpu/mps/test/daemon.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 21u /* of a whole GPU; of a part in proportion to its compute slices */

static struct sg_instance admin;

static void divide(sim_machine *machine) {
    machine->gpus[0].mig = SIM_MIG_ON;
}

static uint32_t make(uint32_t profile, uint32_t slices) {
    sg_state_lock(&admin);
    int gi = sg_mig_create(&admin, 0, profile, SG_MIG_ANYWHERE);
    CHECK(gi >= 0);
    int ci = sg_mig_compute_create(&admin, 0, (uint32_t)gi, slices, SG_MIG_ANYWHERE);
    CHECK(ci >= 0);
    sg_state_unlock(&admin);
    return sg_place_of(0, (uint32_t)gi, (uint32_t)ci);
}

static void see(uint32_t place) {
    uint8_t uuid[16];
    char name[96], *at = name + sprintf(name, "MIG-");

    sg_mig_uuid(&admin, place, uuid);
    for (unsigned i = 0; i < 16; i++) {
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
    }
    CHECK_EQUAL(setenv("CUDA_VISIBLE_DEVICES", name, 1), 0);
}

/* Says what beginning answered, how many multiprocessors it has, and how much memory there is; then waits. */
static int client(int channel) {
    CUcontext ctx;
    size_t left, total = 0;
    int count = 0;
    CUresult result = cuInit(0);

    if (result == CUDA_SUCCESS) {
        OK(cuDevicePrimaryCtxRetain(&ctx, 0));
        OK(cuCtxSetCurrent(ctx));
        OK(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
        OK(cuMemGetInfo_v2(&left, &total));
    }
    worker_tell(channel, result);
    worker_tell(channel, (uint64_t)count);
    worker_tell(channel, total);
    worker_hear(channel);
    return 0;
}

static struct worker start(CUresult result, uint32_t multiprocessors, uint64_t bytes) {
    struct worker worker = worker_start(client, 0);

    CHECK_EQUAL(worker_hear(worker.channel), result);
    CHECK_EQUAL(worker_hear(worker.channel), multiprocessors);
    CHECK_EQUAL(worker_hear(worker.channel), bytes);
    return worker;
}

static void stop(struct worker *worker) {
    worker_tell(worker->channel, 0);
    CHECK_EQUAL(worker_end(worker), 0);
}

/* What a process sees of the instance that the environment names, without a daemon. */
static uint64_t alone(uint64_t *bytes) {
    char *pipe = strdup(getenv("CUDA_MPS_PIPE_DIRECTORY"));

    CHECK(pipe && unsetenv("CUDA_MPS_PIPE_DIRECTORY") == 0);
    struct worker worker = worker_start(client, 0);
    CHECK_EQUAL(worker_hear(worker.channel), CUDA_SUCCESS);
    uint64_t count = worker_hear(worker.channel);
    *bytes = worker_hear(worker.channel);
    stop(&worker);
    CHECK_EQUAL(setenv("CUDA_MPS_PIPE_DIRECTORY", pipe, 1), 0);
    free(pipe);
    return count;
}

int main(int argc, char **argv) {
    struct worker clients[MOST];
    uint64_t bytes;

    (void)argc;
    DAEMON_MAIN(argv);
    daemon_machine(divide, MOST);
    CHECK_EQUAL(sg_open(&admin, getenv("DIVVY_SIMGPU"), "", false), 0);
    uint32_t own = make(4, 3), other = make(4, 3);
    see(own);
    uint32_t whole = (uint32_t)alone(&bytes);
    CHECK(whole > 1 && bytes > 0);
    pid_t daemon = daemon_start();
    CHECK(strcmp(daemon_ask("set_default_active_thread_percentage 50"), "50.0\n") == 0);
    /* A ceiling is relative to the instance, and the memory is the instance's. */
    clients[0] = start(CUDA_SUCCESS, (whole + 1) / 2, bytes);
    CHECK_EQUAL(admin.state->servers[sg_next_server(&admin, 0)].place, own);
    for (unsigned i = 1; i < MOST * 3 / 7; i++) {
        clients[i] = start(CUDA_SUCCESS, (whole + 1) / 2, bytes);
    }
    struct worker more = start(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, 0, 0);
    worker_kill(&more);
    /* Who names another instance gets none through this daemon. */
    stop(&clients[1]);
    see(other);
    more = start(CUDA_ERROR_NO_DEVICE, 0, 0);
    worker_kill(&more);
    see(own);
    stop(&clients[0]);
    for (unsigned i = 2; i < MOST * 3 / 7; i++) {
        stop(&clients[i]);
    }
    daemon_end(daemon);
    return 0;
}
