/* The command line: one table of options for all commands. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How a value is written, and in what it is kept. */
enum form {
    BYTES,    /* uint64_t, with or without a unit */
    NUMBER,   /* uint64_t */
    SMALL,    /* unsigned or int, up to INT_MAX */
    POSITIVE, /* the same from 1 */
    WORD,     /* const char * */
};

static const struct {
    const char *name;
    enum form form;
    size_t offset;
} table[] = {
    {"bytes", BYTES, offsetof(struct options, bytes)},
    {"count", NUMBER, offsetof(struct options, count)},
    {"ns", NUMBER, offsetof(struct options, ns)},
    {"loops", NUMBER, offsetof(struct options, loops)},
    {"kind", WORD, offsetof(struct options, kind)},
    {"device", SMALL, offsetof(struct options, device)},
    {"processes", POSITIVE, offsetof(struct options, processes)},
    {"seed", NUMBER, offsetof(struct options, seed)},
    {"seconds", NUMBER, offsetof(struct options, seconds)},
    {"sync", SMALL, offsetof(struct options, sync_every)},
    {"limit", BYTES, offsetof(struct options, limit)},
    {"live", NUMBER, offsetof(struct options, live)},
    {"grid", POSITIVE, offsetof(struct options, grid)},
    {"graph", SMALL, offsetof(struct options, graph)},
    {"streams", POSITIVE, offsetof(struct options, streams)},
    {"threads", POSITIVE, offsetof(struct options, threads)},
    {"different", POSITIVE, offsetof(struct options, different)},
    {"work", NUMBER, offsetof(struct options, work_ms)},
    {"pause", NUMBER, offsetof(struct options, pause_ms)},
    {"rate", POSITIVE, offsetof(struct options, rate)},
    {"kernels", POSITIVE, offsetof(struct options, kernels)},
    {"period", NUMBER, offsetof(struct options, period_ms)},
    {"wait", SMALL, offsetof(struct options, wait)},
    {"pieces", POSITIVE, offsetof(struct options, pieces)},
    {"steps", POSITIVE, offsetof(struct options, steps)},
    {"scatter", SMALL, offsetof(struct options, scatter)},
};
enum { TABLE = sizeof table / sizeof table[0], HELP = TABLE };

int parse_bytes(const char *text, uint64_t *bytes) {
    if (*text < '0' || *text > '9') {
        return 0;
    }
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    unsigned shift = 0;
    if (strcmp(end, "Ki") == 0) {
        shift = 10;
    } else if (strcmp(end, "Mi") == 0) {
        shift = 20;
    } else if (strcmp(end, "Gi") == 0) {
        shift = 30;
    } else if (*end != '\0') {
        return 0;
    }
    if (errno != 0 || value > (UINT64_MAX >> shift)) {
        return 0;
    }
    *bytes = (uint64_t)value << shift;
    return 1;
}

static int parse_value(enum form form, const char *text, void *into) {
    uint64_t value = 0;
    if (form == WORD) {
        memcpy(into, &text, sizeof text);
        return 1;
    }
    if (!parse_bytes(text, &value) || (form != BYTES && strpbrk(text, "KMG") != NULL)) {
        return 0;
    }
    if (form == BYTES || form == NUMBER) {
        memcpy(into, &value, sizeof value);
        return 1;
    }
    unsigned small = (unsigned)value;
    memcpy(into, &small, sizeof small);
    return value <= INT_MAX && (form != POSITIVE || value > 0);
}

int parse_options(int argc, char **argv, struct options *options) {
    struct option names[TABLE + 2] = {[HELP] = {.name = "help", .val = HELP}};
    for (int i = 0; i < TABLE; i++) {
        names[i] = (struct option){.name = table[i].name, .has_arg = required_argument, .val = i};
    }
    int which;
    while ((which = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (which == HELP) {
            return -1;
        }
        if (which < 0 || which >= TABLE) {
            return -2;
        }
        if (!parse_value(table[which].form, optarg, (char *)options + table[which].offset)) {
            fprintf(stderr, "gpubench: wrong value %s\n", optarg);
            return -2;
        }
    }
    return optind;
}
