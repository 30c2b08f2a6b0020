/* A server has the clients of one user; others wait for their turn, unless the daemon serves all. Needs root. */
#define _GNU_SOURCE
#include "simgpu/mps/test/daemon.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define ALICE 1001u
#define BOB 1002u

static int simple(int channel) {
    CUcontext ctx;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    worker_tell(channel, 1);
    worker_hear(channel);
    return 0;
}

static int refused(int channel) {
    worker_tell(channel, cuInit(0));
    worker_hear(channel);
    return 0;
}

/* Whether the daemon knows that it waits. */
static bool waiting(const struct worker *worker) {
    char text[64];

    snprintf(text, sizeof text, "NEW CLIENT %d from user ", worker->pid);
    return daemon_logged(text);
}

static bool waits(const struct worker *worker) {
    struct pollfd said = {.fd = worker->channel, .events = POLLIN};

    return poll(&said, 1, 0) == 0;
}

/* The uid of a process's owner. */
static uint32_t owner_of(int pid) {
    char path[64], line[256];
    unsigned uid = UINT32_MAX;

    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "re");
    CHECK(file);
    while (fgets(line, sizeof line, file) && sscanf(line, "Uid: %u", &uid) != 1) {
    }
    fclose(file);
    return uid;
}

static void check_turns(void) {
    pid_t daemon = daemon_start();
    struct worker a = worker_start(simple, ALICE);

    CHECK_EQUAL(worker_hear(a.channel), 1);
    CHECK_EQUAL(owner_of(daemon_server()), ALICE);
    struct worker b = worker_start(simple, BOB);
    EVENTUALLY(waiting(&b));
    /* Who comes after somebody who waits does not keep the old server from ending. */
    struct worker c = worker_start(simple, ALICE);
    EVENTUALLY(waiting(&c));
    CHECK(waits(&b) && waits(&c));
    worker_kill(&a);
    CHECK_EQUAL(worker_hear(b.channel), 1);
    CHECK_EQUAL(owner_of(daemon_server()), BOB);
    CHECK(waits(&c));
    worker_tell(b.channel, 0);
    CHECK_EQUAL(worker_end(&b), 0);
    CHECK_EQUAL(worker_hear(c.channel), 1);
    CHECK_EQUAL(owner_of(daemon_server()), ALICE);
    /* A server that is shut down ends with its last client, or with -f at once. */
    char line[64];
    snprintf(line, sizeof line, "shutdown_server %d", daemon_server());
    daemon_ask(line);
    CHECK(daemon_server() != 0);
    strcat(line, " -f");
    daemon_ask(line);
    EVENTUALLY(daemon_server() == 0);
    worker_kill(&c);
    daemon_end(daemon);
}

static void check_all(void) {
    pid_t daemon = daemon_start_for_all();
    struct worker a = worker_start(simple, ALICE), b = worker_start(simple, BOB);

    CHECK_EQUAL(worker_hear(a.channel), 1);
    CHECK_EQUAL(worker_hear(b.channel), 1);
    CHECK_EQUAL(owner_of(daemon_server()), geteuid());
    worker_kill(&a);
    worker_kill(&b);
    daemon_end(daemon);
}

/* Whose server cannot make its contexts gets an error. */
static void check_no_server(void) {
    struct sg_instance in;
    pid_t daemon = daemon_start();

    CHECK_EQUAL(sg_open(&in, getenv("DIVVY_SIMGPU"), "", false), 0);
    sg_compute_mode_set(&in, 0, SG_COMPUTE_PROHIBITED);
    struct worker a = worker_start(refused, ALICE);
    CHECK_EQUAL(worker_hear(a.channel), CUDA_ERROR_MPS_CONNECTION_FAILED);
    worker_kill(&a);
    sg_compute_mode_set(&in, 0, SG_COMPUTE_DEFAULT);
    sg_close(&in);
    daemon_end(daemon);
}

int main(int argc, char **argv) {
    (void)argc;
    DAEMON_MAIN(argv);
    if (geteuid() != 0) {
        fputs("not tested with several users: that needs root\n", stderr);
        return 0;
    }
    daemon_machine(NULL, 48);
    check_turns();
    check_all();
    check_no_server();
    return 0;
}
