#define _GNU_SOURCE
#include "simgpu/ctl.h"

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
    "`divvy simgpu` is the command for people.\n";

/* Reads a whole number up to most; ends the program with the usage when it is none. */
static uint64_t number(const char *text, uint64_t most) {
    char *end;

    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || *text < '0' || *text > '9' || value > most) {
        fprintf(stderr, "simgpuctl: %s is not a number up to %llu\n%s", text,
                (unsigned long long)most, usage);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "create") == 0)
        return ctl_create(argv[2]);
    if (argc == 3 && strcmp(argv[1], "report") == 0)
        return ctl_report(argv[2]);
    if (argc == 4 && strcmp(argv[1], "clear") == 0)
        return ctl_clear(argv[2], (uint32_t)number(argv[3], SG_GPUS_MAX - 1));
    if (argc == 8 && strcmp(argv[1], "inject") == 0) {
        struct ctl_injection what = {
            .call = argv[4],
            .result = (uint32_t)number(argv[5], UINT32_MAX),
            .delay_us = (uint32_t)number(argv[6], UINT32_MAX),
            .count = number(argv[7], UINT64_MAX - 1),
        };
        return ctl_inject(argv[2], (uint32_t)number(argv[3], SG_GPUS_MAX - 1), &what);
    }
    fputs(usage, stderr);
    return 2;
}
