/* The worker ends: whoever waits and whoever calls later hears that the device is away; one line says why. */
#define _GNU_SOURCE
#include "abi/generated/nvml_functions.h"
#include "remote/client/test/setting.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
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
static void check_said(int from) {
    char said[4096];
    ssize_t length = read(from, said, sizeof said - 1);

    CHECK(length > 0);
    said[length] = '\0';
    CHECK(strncmp(said, "divvy: the connection to the GPU has ended: ", 43) == 0);
    CHECK(strchr(said, '\n') == said + length - 1);
}

static void test(enum remote_link_kind kind) {
    pthread_t threads[WAITERS];
    uint64_t value;
    int pipes[2], before = dup(STDERR_FILENO);

    setting_start(kind, answer_none);
    CHECK_EQUAL(cuInit(0), 0);
    CHECK_EQUAL(nvmlInit_v2(), 0);
    for (unsigned i = 0; i < WAITERS; i++) {
        CHECK(pthread_create(&threads[i], NULL, block, NULL) == 0);
    }
    UNTIL(__atomic_load_n(&blocked, __ATOMIC_ACQUIRE) == WAITERS);
    CHECK(pipe2(pipes, O_NONBLOCK) == 0);
    dup2(pipes[1], STDERR_FILENO);
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
    check_said(pipes[0]);
}

int main(void) {
    return setting_run(test);
}
