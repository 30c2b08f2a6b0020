/* Opening an instance, and saying why it cannot be. */
#define _GNU_SOURCE
#include "simgpu/ctl/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
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

bool ctl_duration(const char *text, uint64_t *ns) {
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"", 1}, {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
    char *end;

    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *text < '0' || *text > '9') {
        return false;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(end, units[i].name) == 0 && value <= INT64_MAX / units[i].ns) {
            *ns = value * units[i].ns;
            return true;
        }
    }
    return false;
}

bool ctl_open(struct sg_instance *in, const char *dir) {
    int result = sg_open(in, dir, "", false);

    if (result != 0) {
        ctl_fail(dir, result);
    }
    return result == 0;
}

const sim_machine *ctl_machine(const struct sg_instance *in) {
    size_t bytes;
    const sim_machine *machine = sg_state_machine(in, &bytes);

    if (bytes == sizeof *machine && machine->magic == SIM_MAGIC &&
        machine->version == SIM_VERSION) {
        return machine;
    }
    ctl_fail(in->dir, -ESTALE);
    return NULL;
}

/* Names come from processes: quotes, backslashes and control bytes are escaped, and bytes that are
 * no ASCII are written as Latin-1, which keeps the JSON valid. */
void ctl_print_string(FILE *out, const char *text, size_t size) {
    fputc('"', out);
    for (size_t i = 0; i < size && text[i]; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\') {
            fprintf(out, "\\%c", c);
        } else if (c < 0x20 || c > 0x7e) {
            fprintf(out, "\\u%04x", c);
        } else {
            fputc(c, out);
        }
    }
    fputc('"', out);
}
