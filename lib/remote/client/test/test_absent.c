/* Nobody listens: what initializes says so each time, and one line says why. The same program finds a worker later. */
#define _GNU_SOURCE
#include "abi/generated/nvml_functions.h"
#include "remote/client/test/setting.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static void answer(struct remote_link *link, const struct remote_head *head,
                   const uint64_t *words) {
    (void)words;
    setting_answer(link, head, 0, 0, 0);
}

int main(void) {
    static const char line[] = "divvy: no connection to the GPU: ";
    char said[4096];
    uint64_t value;
    int pipes[2], before = dup(STDERR_FILENO);

    setenv("DIVVY_REMOTE_SOCKET", "/nowhere/socket", 1);
    CHECK(pipe2(pipes, O_NONBLOCK) == 0);
    dup2(pipes[1], STDERR_FILENO);
    for (int i = 0; i < 2; i++) {
        CHECK_EQUAL(cuInit(0), CUDA_ERROR_DEVICE_UNAVAILABLE);
        CHECK_EQUAL(nvmlInit_v2(), NVML_ERROR_DRIVER_NOT_LOADED);
        CHECK_EQUAL(setting_ask(REMOTE_cuEventQuery, 1, &value), CUDA_ERROR_NOT_INITIALIZED);
        CHECK_EQUAL(setting_ask(REMOTE_nvmlUnitGetCount, 1, &value), NVML_ERROR_UNINITIALIZED);
    }
    dup2(before, STDERR_FILENO);
    ssize_t length = read(pipes[0], said, sizeof said - 1);
    CHECK(length > 0);
    said[length] = '\0';
    CHECK(strncmp(said, line, strlen(line)) == 0);
    CHECK(strchr(said, '\n') == said + length - 1);
    setting_start(REMOTE_LINK_RINGS, answer);
    CHECK_EQUAL(cuInit(0), 0);
    return 0;
}
