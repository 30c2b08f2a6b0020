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

int ctl_fail(const char *dir, int error)
{
    const char *why = strerror(-error);

    switch (-error) {
    case ENOENT:
        why = "there is no simulated machine: start one with `divvy simgpu start`";
        break;
    case EEXIST:
        why = "there is a simulated machine already";
        break;
    case EINVAL:
        why = "its state is damaged: stop it with --force and start it anew";
        break;
    case ESTALE:
        why = "it was started by another version of Divvy: stop it with --force and start it anew";
        break;
    case EUSERS:
        why = "too many processes use it";
        break;
    case ENOSPC:
        why = "no space left: free some, or set DIVVY_RUNDIR to a directory that has room";
        break;
    }
    fprintf(stderr, "%s: %s\n", dir, why);
    return 1;
}

bool ctl_open(struct sg_instance *in, const char *dir)
{
    int result = sg_open(in, dir, "", false);

    if (result != 0)
        ctl_fail(dir, result);
    return result == 0;
}

const sim_machine *ctl_machine(const struct sg_instance *in)
{
    size_t bytes;
    const sim_machine *machine = sg_state_machine(in, &bytes);

    if (bytes == sizeof *machine && machine->magic == SIM_MAGIC && machine->version == SIM_VERSION)
        return machine;
    ctl_fail(in->dir, -ESTALE);
    return NULL;
}

/* Reads a whole number up to most; ends the program with the usage when it is none. */
static uint64_t number(const char *text, uint64_t most)
{
    char *end;

    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || *text < '0' || *text > '9' || value > most) {
        fprintf(stderr, "simgpuctl: %s is not a number up to %llu\n%s", text, (unsigned long long)most,
                usage);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
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
