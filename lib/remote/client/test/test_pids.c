/* NVML's processes: the program itself in its worker's place, and of another host those whose workers the relay has named. */
#define _GNU_SOURCE
#include "remote/client/nvml.h"
#include "remote/client/test/setting.h"

#include <fcntl.h>
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

/* What a relay leaves beside the socket for a worker. */
static void leave(char name[64], const char *line) {
    const char *path = getenv("DIVVY_REMOTE_SOCKET");

    snprintf(name, 64, "%.*sworker-%u", (int)(strrchr(path, '/') - path) + 1, path, OTHER);
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t length = (ssize_t)strlen(line);
    CHECK(file >= 0 && write(file, line, (size_t)length) == length && close(file) == 0);
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
}

int main(void) {
    return setting_run(test);
}
