/* NVML's processes: the program itself in its worker's place, and of another host those whose workers the relay has named. */
#define _GNU_SOURCE
#include "abi/generated/nvml_functions.h"
#include "remote/client/nvml.h"
#include "remote/client/test/setting.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Numbers that no process of this machine has. */
#define OWN 4294967001u
#define OTHER 4294967002u
#define CLIENT 4711u

static void answer(struct remote_link *link, const struct remote_head *head,
                   const uint64_t *words) {
    (void)words;
    setting_answer(link, head, 0, 0, head->call == REMOTE_PROCESS ? OWN : 0);
}

static void write_line(const char *name, const char *line) {
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t length = (ssize_t)strlen(line);
    CHECK(file >= 0 && write(file, line, (size_t)length) == length && close(file) == 0);
}

/* What a relay leaves beside the socket for a worker. */
static void leave(char name[64], const char *line) {
    const char *path = getenv("DIVVY_REMOTE_SOCKET");

    snprintf(name, 64, "%.*sworker-%u", (int)(strrchr(path, '/') - path) + 1, path, OTHER);
    write_line(name, line);
}

/* What a process of this machine was started as. */
static void check_called(unsigned process) {
    char path[32], want[1024] = "", name[1024] = "";

    snprintf(path, sizeof path, "/proc/%u/cmdline", process);
    int file = open(path, O_RDONLY);
    CHECK(file >= 0 && read(file, want, sizeof want - 1) > 0 && close(file) == 0);
    CHECK_EQUAL(nvmlSystemGetProcessName(process, name, sizeof name), NVML_SUCCESS);
    CHECK(strcmp(name, want) == 0);
    CHECK_EQUAL(nvmlSystemGetProcessName(process, name, 3), NVML_SUCCESS);
    CHECK(strlen(name) == 2 && strncmp(name, want, 2) == 0);
}

/* On another host names are those of the share's processes, which are on this one. */
static void check_names(void) {
    char file[64], line[16], name[64];
    unsigned parent = (unsigned)getppid();

    leave(file, "none\n");
    check_called((unsigned)getpid());
    CHECK_EQUAL(nvmlSystemGetProcessName(parent, name, sizeof name), NVML_ERROR_NOT_FOUND);
    snprintf(line, sizeof line, "%u\n", parent);
    write_line(file, line);
    check_called(parent);
    CHECK_EQUAL(nvmlSystemGetProcessName(1, name, sizeof name), NVML_ERROR_NOT_FOUND);
    unlink(file);
    CHECK_EQUAL(nvmlSystemGetProcessName(parent, name, sizeof name), NVML_ERROR_NOT_FOUND);
}

static void test(enum remote_link_kind kind) {
    bool apart = kind == REMOTE_LINK_STREAM;
    char name[64];

    setting_start(kind, answer);
    CHECK_EQUAL(nvmlInit_v2(), 0);
    CHECK_EQUAL(nvml_shown(OWN), getpid());
    CHECK_EQUAL(nvml_meant((unsigned)getpid()), OWN);
    CHECK_EQUAL(nvml_shown(OTHER), OTHER);
    leave(name, "4711\n");
    CHECK_EQUAL(nvml_shown(OTHER), apart ? CLIENT : OTHER);
    CHECK_EQUAL(nvml_shown(OWN), getpid());
    leave(name, "none\n");
    CHECK_EQUAL(nvml_shown(OTHER), OTHER);
    leave(name, "");
    CHECK_EQUAL(nvml_shown(OTHER), OTHER);
    unlink(name);
    CHECK_EQUAL(nvml_shown(OTHER), OTHER);
    if (apart) {
        check_names();
    }
}

int main(void) {
    return setting_run(test);
}
