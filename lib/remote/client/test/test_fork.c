/* The child of a fork: refused if the parent called cuInit, and new to the worker otherwise. It writes nothing into its
 * parent's link, whose answers all come to the parent. */
#define _GNU_SOURCE
#include "abi/generated/nvml_functions.h"
#include "remote/client/test/setting.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
/* A child that may connect anew starts threads. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "die_after_fork=0";
}
#endif

static void echo(struct remote_link *link, const struct remote_head *head, const uint64_t *words) {
    setting_answer(link, head, 0, 0, head->size > sizeof *head ? words[0] : 0);
}

static pid_t plain_fork(void) {
    return fork();
}

/* A fork of which no handler hears. */
__attribute__((unused)) static pid_t bare_fork(void) {
    return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
}

static void wait_for(pid_t child) {
    int status;

    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

static void ask_in_parent(void) {
    uint64_t value = 0;

    CHECK_EQUAL(setting_ask(REMOTE_cuEventQuery, 77, &value), 0);
    CHECK_EQUAL(value, 77);
}

static void refused_child(void) {
    struct remote_head posted = {.size = sizeof posted, .call = REMOTE_cuGraphDestroy, .posted = 1};
    uint64_t value = 0;

    for (int i = 0; i < 2; i++) {
        CHECK_EQUAL(setting_ask(REMOTE_cuEventQuery, 1, &value), CUDA_ERROR_NOT_INITIALIZED);
        CHECK_EQUAL(setting_ask(REMOTE_nvmlUnitGetCount, 1, &value), NVML_ERROR_UNINITIALIZED);
        CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
        CHECK_EQUAL(nvmlInit_v2(), NVML_ERROR_UNINITIALIZED);
        CHECK_EQUAL(remote_send(&posted, NULL, 0), 0);
    }
    _exit(0);
}

static void check_refused(pid_t (*start)(void)) {
    unsigned long before = setting_records();
    pid_t child = start();

    CHECK(child >= 0);
    if (child == 0) {
        refused_child();
    }
    wait_for(child);
    CHECK_EQUAL(setting_records(), before);
    ask_in_parent();
    CHECK_EQUAL(setting_records(), before + 1);
    CHECK_EQUAL(setting_connections(), 2);
}

/* Only NVML was used so far. */
static void check_new(void) {
    uint64_t value = 0;
    pid_t child;

    CHECK_EQUAL(nvmlInit_v2(), 0);
    CHECK_EQUAL(setting_connections(), 1);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK_EQUAL(setting_ask(REMOTE_nvmlUnitGetCount, 1, &value), NVML_ERROR_UNINITIALIZED);
        CHECK_EQUAL(cuInit(0), 0);
        CHECK_EQUAL(setting_ask(REMOTE_cuEventQuery, 9, &value), 0);
        CHECK_EQUAL(value, 9);
        CHECK_EQUAL(setting_ask(REMOTE_nvmlUnitGetCount, 1, &value), NVML_ERROR_UNINITIALIZED);
        CHECK_EQUAL(nvmlInit_v2(), 0);
        CHECK_EQUAL(setting_ask(REMOTE_nvmlUnitGetCount, 3, &value), 0);
        _exit(0);
    }
    wait_for(child);
    CHECK_EQUAL(setting_connections(), 2);
    CHECK_EQUAL(setting_ask(REMOTE_nvmlUnitGetCount, 4, &value), 0);
    CHECK_EQUAL(value, 4);
}

/* A child that shares its parent's memory changes nothing of it. */
static void check_vfork(void) {
    pid_t child = vfork();

    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    wait_for(child);
    ask_in_parent();
}

static void test(enum remote_link_kind kind) {
    setting_start(kind, echo);
    check_new();
    CHECK_EQUAL(cuInit(0), 0);
    ask_in_parent();
    check_refused(plain_fork);
#ifndef __SANITIZE_THREAD__ /* it takes such a child for another thread of the parent */
    check_refused(bare_fork);
#endif
    check_vfork();
}

int main(void) {
    return setting_run(test);
}
