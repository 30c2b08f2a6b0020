/* A worker in a process of its own, with the simulated driver, and the client's library in this one. */
#define _GNU_SOURCE
#include "remote/test/pair.h"
#include "remote/test/sequence.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/divvy-apart-XXXXXX";
static pid_t worker;
static int life;

static void start(const char *path, int ready, int life_read) {
    char ready_text[16], life_text[16];

    snprintf(ready_text, sizeof ready_text, "%d", ready);
    snprintf(life_text, sizeof life_text, "%d", life_read);
    setenv("LD_LIBRARY_PATH", SIMGPU_FOLDER, 1);
    execl(WORKER_PROGRAM, WORKER_PROGRAM, "--listen", path, "--ready", ready_text, "--life",
          life_text, (char *)NULL);
    _exit(127);
}

void apart_start(bool strict) {
    int ready[2], alive[2];
    char path[64], byte;

    CHECK(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/socket", folder);
    CHECK(pipe(ready) == 0 && pipe(alive) == 0);
    worker = fork();
    CHECK(worker >= 0);
    if (worker == 0) {
        close(alive[1]);
        close(ready[0]);
        start(path, ready[1], alive[0]);
    }
    close(ready[1]);
    close(alive[0]);
    CHECK(fcntl(alive[1], F_SETFD, FD_CLOEXEC) == 0);
    life = alive[1];
    CHECK_EQUAL(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    setenv("DIVVY_REMOTE_SOCKET", path, 1);
    if (strict) {
        setenv("DIVVY_REMOTE", "strict", 1);
    }
    pair_load(CLIENT_FOLDER "libcuda.so.1");
}

/* The worker of this process ends with it; the one that listens must not wait for that. */
void apart_end(void) {
    char path[64];

    CHECK(kill(worker, SIGTERM) == 0);
    CHECK_EQUAL(waitpid(worker, NULL, 0), worker);
    close(life);
    snprintf(path, sizeof path, "%s/socket", folder);
    unlink(path);
    rmdir(folder);
}
