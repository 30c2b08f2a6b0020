/* The worker ends: whoever waits and whoever calls later hears that the device is away; one line says why. */
#define _GNU_SOURCE
#include "abi/generated/nvml_functions.h"
#include "remote/client/test/setting.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WAITERS 6u

static unsigned blocked;

static void answer_none(struct remote_link *link, const struct remote_head *head,
                        const uint64_t *words) {
    (void)words;
    if (head->call == REMOTE_cuEventQuery) {
        __atomic_add_fetch(&blocked, 1, __ATOMIC_RELEASE);
    } else {
        setting_answer(link, head, 0, 0, 0);
    }
}

static void *block(void *of) {
    uint64_t value = 7;

    (void)of;
    CHECK_EQUAL(setting_ask(REMOTE_cuEventQuery, 1, &value), CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHECK_EQUAL(value, 7);
    return NULL;
}

/* What the client wrote on standard error: one line. */
static void check_said(int from, const char *why) {
    static const char begin[] = "divvy: the connection to the GPU has ended: ";
    char said[4096];
    ssize_t length = read(from, said, sizeof said - 1);

    CHECK(length > 0);
    said[length] = '\0';
    CHECK(strncmp(said, begin, sizeof begin - 1) == 0);
    CHECK(strchr(said, '\n') == said + length - 1);
    said[length - 1] = '\0';
    CHECK(strcmp(said + sizeof begin - 1, why) == 0);
}

/* A relay leaves its reason beside the socket. */
static const char *leave_reason(char name[64]) {
    const char *path = getenv("DIVVY_REMOTE_SOCKET");

    snprintf(name, 64, "%.*sended-%d", (int)(strrchr(path, '/') - path) + 1, path, (int)getpid());
    int file = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(file >= 0 && write(file, "gpu1 is gone\nand more\n", 22) == 22 && close(file) == 0);
    return "gpu1 is gone";
}

/* With a reason beside the socket or without. */
static void ended(enum remote_link_kind kind, bool told) {
    pthread_t threads[WAITERS];
    uint64_t value;
    int pipes[2], before = dup(STDERR_FILENO);
    char name[64] = "";

    setting_start(kind, answer_none);
    CHECK_EQUAL(cuInit(0), 0);
    CHECK_EQUAL(nvmlInit_v2(), 0);
    for (unsigned i = 0; i < WAITERS; i++) {
        CHECK(pthread_create(&threads[i], NULL, block, NULL) == 0);
    }
    UNTIL(__atomic_load_n(&blocked, __ATOMIC_ACQUIRE) == WAITERS);
    CHECK(pipe2(pipes, O_NONBLOCK) == 0);
    dup2(pipes[1], STDERR_FILENO);
    const char *why = "the worker is gone";
    if (kind == REMOTE_LINK_STREAM) { /* which comes from a relay */
        why = told ? leave_reason(name)
                   : "divvy relay on this machine, which kept the connection to the GPU's host, "
                     "has ended";
    }
    remote_link_end(setting_link());
    for (unsigned i = 0; i < WAITERS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK_EQUAL(setting_ask(REMOTE_cuStreamQuery, 1, &value), CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHECK_EQUAL(setting_ask(REMOTE_nvmlUnitGetCount, 1, &value), NVML_ERROR_GPU_IS_LOST);
    CHECK_EQUAL(cuInit(0), CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHECK_EQUAL(nvmlInit_v2(), NVML_ERROR_GPU_IS_LOST);
    CHECK_EQUAL(setting_connections(), 1);
    dup2(before, STDERR_FILENO);
    check_said(pipes[0], why);
    if (name[0]) {
        unlink(name);
    }
}

/* A program that closes all that it has open, as one does that becomes a service. The number may be another file's by then. */
static void closed(bool again) {
    int pipes[2], before = dup(STDERR_FILENO), socket;
    uint64_t value;

    setting_start(REMOTE_LINK_STREAM, answer_none);
    CHECK_EQUAL(cuInit(0), 0);
    CHECK(pipe2(pipes, O_NONBLOCK) == 0);
    dup2(pipes[1], STDERR_FILENO);
    socket = remote_session_link()->socket;
    /* Past a checker of threads, which knows that somebody else uses it. */
    CHECK(syscall(SYS_close, socket) == 0);
    CHECK(!again || syscall(SYS_dup2, pipes[0], socket) == socket);
    CHECK_EQUAL(setting_ask(REMOTE_cuStreamQuery, 1, &value), CUDA_ERROR_DEVICE_UNAVAILABLE);
    dup2(before, STDERR_FILENO);
    check_said(pipes[0], "this process has closed its descriptor");
}

static void test_closed(enum remote_link_kind kind) {
    if (kind == REMOTE_LINK_STREAM) {
        closed(false);
    }
}

static void test_reused(enum remote_link_kind kind) {
    if (kind == REMOTE_LINK_STREAM) {
        closed(true);
    }
}

static void test_told(enum remote_link_kind kind) {
    ended(kind, true);
}

static void test_killed(enum remote_link_kind kind) {
    ended(kind, false);
}

int main(void) {
    void (*const tests[])(enum remote_link_kind) = {test_told, test_killed, test_closed,
                                                    test_reused};
    int failed = 0;

    for (size_t i = 0; !failed && i < sizeof tests / sizeof *tests; i++) {
        failed = setting_run(tests[i]);
    }
    return failed;
}
