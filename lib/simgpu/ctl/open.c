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

/* The length of the UTF-8 sequence that begins here, 0 if there is none: no byte alone, none too
 * long for its code point, no surrogate and nothing above U+10FFFF (RFC 3629). */
static size_t utf8_length(const unsigned char *text, size_t size) {
    size_t length = text[0] < 0x80 ? 1 : text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;

    if ((text[0] >= 0x80 && text[0] < 0xc2) || text[0] > 0xf4 || length > size) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool outside = (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
                   (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f);
    return outside ? 0 : length;
}

/* Names come from processes: quotes, backslashes and control characters are escaped, and a byte
 * that is no UTF-8, such as of a name that was cut, becomes the replacement character. */
void ctl_print_string(FILE *out, const char *text, size_t size) {
    const unsigned char *bytes = (const unsigned char *)text;

    fputc('"', out);
    for (size_t i = 0, length; i < size && bytes[i]; i += length ? length : 1) {
        length = utf8_length(bytes + i, size - i);
        if (length == 0) {
            fputs("\\ufffd", out);
        } else if (bytes[i] == '"' || bytes[i] == '\\') {
            fprintf(out, "\\%c", bytes[i]);
        } else if (bytes[i] < 0x20 || bytes[i] == 0x7f) {
            fprintf(out, "\\u%04x", bytes[i]);
        } else {
            fwrite(bytes + i, 1, length, out);
        }
    }
    fputc('"', out);
}
