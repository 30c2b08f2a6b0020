#define _GNU_SOURCE
#include "simgpu/ctl/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: simgpuctl create DIR < MACHINE    make an instance in an empty directory\n"
    "       simgpuctl report DIR              print what truly happened, as JSON\n"
    "       simgpuctl inject DIR GPU CALL RESULT DELAY_US COUNT\n"
    "                                         make calls of that name fail or slow\n"
    "       simgpuctl clear DIR GPU           end all injections on a GPU\n"
    "       simgpuctl oracle DIR [--watch TIME]\n"
    "                                         print GPU time so far, a line for each GPU\n"
    "       simgpuctl segments DIR PID        print when a process had its GPUs\n"
    "       simgpuctl slice DIR PID|TENANT TIME\n"
    "                                         set a time slice; 0 is the machine's own\n"
    "       simgpuctl clock DIR +TIME         move a virtual clock on\n"
    "       simgpuctl play [DIR] < LINES      drive the schedule on a virtual clock\n"
    "TIME is a number and ns, us, ms or s.\n"
    "`divvy simgpu` is the command for people.\n";

_Noreturn static void refuse(const char *text, const char *what) {
    fprintf(stderr, "simgpuctl: %s is not %s\n%s", text, what, usage);
    exit(2);
}

/* Reads a whole number up to most; ends the program with the usage when it is none. */
static uint64_t number(const char *text, uint64_t most) {
    char *end, what[64];

    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno == 0 && *end == '\0' && *text >= '0' && *text <= '9' && value <= most) {
        return value;
    }
    snprintf(what, sizeof what, "a number up to %llu", (unsigned long long)most);
    refuse(text, what);
}

static uint64_t duration(const char *text) {
    uint64_t ns;

    if (!ctl_duration(text, &ns)) {
        refuse(text, "a time such as 5ms");
    }
    return ns;
}

static int inject(char **argv) {
    struct ctl_injection what = {
        .call = argv[4],
        .result = (uint32_t)number(argv[5], UINT32_MAX),
        .delay_us = (uint32_t)number(argv[6], UINT32_MAX),
        .count = number(argv[7], UINT64_MAX - 1),
    };

    return ctl_inject(argv[2], (uint32_t)number(argv[3], SG_GPUS_MAX - 1), &what);
}

int main(int argc, char **argv) {
    const char *command = argc >= 3 ? argv[1] : "", *dir = argc >= 3 ? argv[2] : NULL;

    if (argc == 3 && strcmp(command, "create") == 0) {
        return ctl_create(dir);
    }
    if (argc <= 3 && strcmp(argc >= 2 ? argv[1] : "", "play") == 0) {
        return ctl_play(dir);
    }
    if (argc == 3 && strcmp(command, "report") == 0) {
        return ctl_report(dir);
    }
    if (argc == 4 && strcmp(command, "clear") == 0) {
        return ctl_clear(dir, (uint32_t)number(argv[3], SG_GPUS_MAX - 1));
    }
    if (argc == 8 && strcmp(command, "inject") == 0) {
        return inject(argv);
    }
    if (argc == 3 && strcmp(command, "oracle") == 0) {
        return ctl_oracle(dir, 0);
    }
    if (argc == 5 && strcmp(command, "oracle") == 0 && strcmp(argv[3], "--watch") == 0) {
        return ctl_oracle(dir, duration(argv[4]));
    }
    if (argc == 4 && strcmp(command, "segments") == 0) {
        return ctl_segments(dir, (int32_t)number(argv[3], INT32_MAX));
    }
    if (argc == 5 && strcmp(command, "slice") == 0) {
        return ctl_slice(dir, argv[3], duration(argv[4]));
    }
    if (argc == 4 && strcmp(command, "clock") == 0 && argv[3][0] == '+') {
        return ctl_clock(dir, duration(argv[3] + 1));
    }
    fputs(usage, stderr);
    return 2;
}
