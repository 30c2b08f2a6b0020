#define _GNU_SOURCE
#include "remote/test/whole.h"

#include "simgpu/machine/test/setting.h"
#include "test/check.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct whole cu;

static char path[64];
static pid_t listener, starter;
static int life[2];

static void stop(void) {
    if (getpid() == starter) {
        close(life[1]);
        waitpid(listener, NULL, 0);
        unlink(path);
    }
}

/* A copy of a descriptor that the program to be executed gets, as text. */
static const char *inherited(int descriptor, char text[16]) {
    snprintf(text, 16, "%d", dup(descriptor));
    return text;
}

void whole_start(void) {
    char life_text[16], ready_text[16], said[64];
    sim_machine machine;
    int ready[2];

    setting_describe(&machine);
    machine.cuda_version = 13040;
    setting_make(&machine);
    starter = getpid();
    snprintf(path, sizeof path, "/tmp/divvy-whole-%d", (int)starter);
    CHECK(pipe2(life, O_CLOEXEC) == 0 && pipe2(ready, O_CLOEXEC) == 0);
    listener = fork();
    CHECK(listener >= 0);
    if (listener == 0) {
        setenv("LD_LIBRARY_PATH", REMOTE_BUILD "/lib/simgpu", 1);
        execl(REMOTE_BUILD "/libexec/divvy/divvy-worker", "divvy-worker", "--listen", path,
              "--ready", inherited(ready[1], ready_text), "--life", inherited(life[0], life_text),
              NULL);
        _exit(127);
    }
    close(life[0]);
    close(ready[1]);
    atexit(stop);
    CHECK(read(ready[0], said, sizeof said) > 0);
    close(ready[0]);
    setenv("DIVVY_REMOTE_SOCKET", path, 1);
}

void whole_load(bool remote) {
    void *library = dlopen(remote ? REMOTE_BUILD "/lib/remote/libcuda.so.1"
                                  : REMOTE_BUILD "/lib/simgpu/libcuda.so.1",
                           RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
    }
    CHECK(library);
#define FIND(name)                                                                                 \
    {                                                                                              \
        void *at = dlsym(library, #name);                                                          \
        CHECK(at);                                                                                 \
        memcpy(&cu.name, &at, sizeof at);                                                          \
    }
#define X FIND
#include "remote/test/whole_functions.inc"
#undef X
}

void *whole_share(size_t size) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(at != MAP_FAILED);
    return at;
}

int whole_run(bool remote, void (*run)(void *argument), void *argument) {
    int status;

    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(life[1]);
        alarm(120);
        whole_load(remote);
        run(argument);
        fflush(NULL);
        _exit(0);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    return status;
}

/* The first of the listener's children, which are workers, and what follows it in the text; 0 for none. */
static pid_t first_worker(char *text, size_t size, char **rest) {
    char name[64];

    snprintf(name, sizeof name, "/proc/%d/task/%d/children", (int)listener, (int)listener);
    FILE *file = fopen(name, "r");
    CHECK(file);
    text[fread(text, 1, size - 1, file)] = 0;
    fclose(file);
    return (pid_t)strtol(text, rest, 10);
}

void whole_await_no_worker(void) {
    char text[512], *rest;

    while (first_worker(text, sizeof text, &rest) > 0) {
        poll(NULL, 0, 1);
    }
}

/* Others that serve nobody any more end by themselves. */
void whole_kill_worker(void) {
    char text[512], *rest;

    for (pid_t worker = first_worker(text, sizeof text, &rest); worker > 0;
         worker = (pid_t)strtol(rest, &rest, 10)) {
        CHECK(kill(worker, SIGKILL) == 0 || errno == ESRCH); /* it has ended since */
    }
}
