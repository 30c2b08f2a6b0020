/* Processes of several pid namespaces: everybody is told of those that it sees, by the number under
 * which it sees them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi/generated/nvml_functions.h"
#include "simgpu/ctl/ctl.h"
#include "simgpu/machine/test/setting.h"

static int outer; /* our own pid namespace */

/* Children that are made from now on are in the namespace. */
static void enter(int namespace) {
    CHECK_EQUAL(setns(namespace, CLONE_NEWPID), 0);
}

/* A namespace of its own for children that are made from now on, with its first process. */
static int make_namespace(pid_t *first, const char *tag, uint32_t blocks) {
    enter(outer);
    CHECK_EQUAL(unshare(CLONE_NEWPID), 0);
    *first = setting_process(tag, 0, blocks, 0);
    int namespace = open("/proc/self/ns/pid_for_children", O_RDONLY | O_CLOEXEC);
    CHECK(namespace >= 0);
    return namespace;
}

/* The number by which a process knows itself: threads of a sanitizer's have numbers too. */
static pid_t inner_pid(pid_t pid) {
    char path[32], line[256];
    const char *last = NULL;

    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "re");
    CHECK(file);
    while (!last && fgets(line, sizeof line, file)) {
        if (strncmp(line, "NSpid:", 6) == 0) {
            last = strrchr(line, '\t');
        }
    }
    fclose(file);
    CHECK(last);
    return (pid_t)atoi(last);
}

static unsigned int list_processes(nvmlProcessInfo_t list[8]) {
    unsigned int count = 8;
    nvmlDevice_t device;

    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list), NVML_SUCCESS);
    return count;
}

static void expect(const pid_t *pids, const unsigned *blocks, unsigned int n) {
    nvmlProcessInfo_t list[8];

    CHECK_EQUAL(list_processes(list), n);
    for (unsigned int i = 0; i < n; i++) {
        CHECK_EQUAL(list[i].pid, pids[i]);
        CHECK_EQUAL(list[i].usedGpuMemory, blocks[i] * SG_BLOCK_BYTES);
    }
}

/* What a process in the namespace is told, which has mounted its own /proc as a container has. */
static void expect_inside(int namespace, const pid_t *pids, const unsigned *blocks,
                          unsigned int n) {
    int status;

    enter(namespace);
    pid_t child = fork();
    if (child == 0) {
        CHECK_EQUAL(unshare(CLONE_NEWNS), 0);
        CHECK_EQUAL(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
        CHECK_EQUAL(mount("proc", "/proc", "proc", 0, NULL), 0);
        CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
        expect(pids, blocks, n);
        _exit(0);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    enter(outer);
}

/* The oracle on the host names who is in a container as the host does. */
static void check_oracle(const char *dir, pid_t pid) {
    char want[64], *text = NULL;
    size_t size;
    FILE *shown = stdout;

    stdout = open_memstream(&text, &size);
    CHECK(stdout);
    CHECK_EQUAL(ctl_report(dir), 0);
    fclose(stdout);
    stdout = shown;
    snprintf(want, sizeof want, "{\"pid\": %d, \"tenant\": \"inner\"", pid);
    CHECK(strstr(text, want));
    free(text);
}

int main(void) {
    sim_machine machine;
    pid_t first, other;

    outer = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    CHECK(outer >= 0);
    if (unshare(CLONE_NEWPID) != 0) {
        CHECK(errno == EPERM);
        puts("left out: pid namespaces cannot be made here");
        return 0;
    }
    enter(outer);
    setting_describe(&machine);
    const char *dir = setting_make(&machine);
    CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);

    int inner = make_namespace(&first, "inner", 3);
    pid_t second = setting_process("inner", 0, 2, 0);
    int beside = make_namespace(&other, "beside", 4);
    enter(outer);
    pid_t plain = setting_process("plain", 0, 1, 0);
    CHECK(first != 1 && second != 2);
    expect((pid_t[]){first, second, other, plain}, (unsigned[]){3, 2, 4, 1}, 4);
    CHECK_EQUAL(inner_pid(first), 1);
    expect_inside(inner, (pid_t[]){1, inner_pid(second)}, (unsigned[]){3, 2}, 2);
    expect_inside(beside, (pid_t[]){1}, (unsigned[]){4}, 1);
    check_oracle(dir, second);
    CHECK_EQUAL(ctl_segments(dir, second), 0);
    CHECK_EQUAL(ctl_slice(dir, "2", 2000000), 1); /* its own number means nothing here */

    setting_kill(second);
    expect((pid_t[]){first, other, plain}, (unsigned[]){3, 4, 1}, 3);
    setting_kill(first);
    setting_kill(other);
    setting_kill(plain);
    expect(NULL, NULL, 0);
    CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
    return 0;
}
