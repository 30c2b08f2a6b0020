/* Opening an instance, and saying why it cannot be. */
#define _GNU_SOURCE
#include "simgpu/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int ctl_fail(const char *dir, int error) {
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

bool ctl_open(struct sg_instance *in, const char *dir) {
    int result = sg_open(in, dir, "", false);

    if (result != 0)
        ctl_fail(dir, result);
    return result == 0;
}

const sim_machine *ctl_machine(const struct sg_instance *in) {
    size_t bytes;
    const sim_machine *machine = sg_state_machine(in, &bytes);

    if (bytes == sizeof *machine && machine->magic == SIM_MAGIC && machine->version == SIM_VERSION)
        return machine;
    ctl_fail(in->dir, -ESTALE);
    return NULL;
}
