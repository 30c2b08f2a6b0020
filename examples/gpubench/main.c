/*
 * gpubench: a small client of the CUDA driver API for demonstrations, tests and measurements. Every
 * command prints one JSON object. Exit status: 0 done, 1 the driver refused (the object says which
 * call and why), 2 wrong usage, 3 no driver.
 */
#include "driver.h"
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(const struct options *);
    const char *help;
} commands[] = {
    {"info", command_info, "what the driver shows: devices, memory"},
    {"init", command_init, "processor time of opening and initialising the driver"},
    {"alloc", command_alloc, "allocate --count times --bytes of --kind, then free it all"},
    {"hold", command_hold, "allocate --bytes and hold it until end of input, SIGTERM or --seconds"},
    {"copy", command_copy, "copy --bytes to the GPU, within it and back, and compare"},
    {"spin", command_spin, "launch --count kernels of --ns GPU time each"},
    {"graph", command_graph, "the same as a CUDA graph of --count kernels"},
    {"storm", command_storm, "--processes race through --count allocations of mixed sizes"},
    {"cost", command_cost, "time per allocation with --live others, and per launch"},
};

static void usage(FILE *out) {
    fputs("usage: gpubench COMMAND [--bytes 64Mi] [--count N] [--ns N] [--kind KIND] [--device N]\n"
          "                [--processes N] [--seed N] [--seconds N] [--sync N] [--limit BYTES] "
          "[--live N]\n"
          "kinds: linear async managed pitch vmm array\n\ncommands:\n",
          out);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fprintf(out, "  %-6s %s\n", commands[i].name, commands[i].help);
}

int parse_bytes(const char *text, uint64_t *bytes) {
    if (*text < '0' || *text > '9')
        return 0;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    unsigned shift = 0;
    if (strcmp(end, "Ki") == 0)
        shift = 10;
    else if (strcmp(end, "Mi") == 0)
        shift = 20;
    else if (strcmp(end, "Gi") == 0)
        shift = 30;
    else if (*end != '\0')
        return 0;
    if (errno != 0 || value > (UINT64_MAX >> shift))
        return 0;
    *bytes = (uint64_t)value << shift;
    return 1;
}

static int parse_number(const char *text, uint64_t *number) {
    return strpbrk(text, "KMG") == NULL && parse_bytes(text, number);
}

static int parse_small(const char *text, unsigned *number) {
    uint64_t value;
    if (!parse_number(text, &value) || value > INT_MAX)
        return 0;
    *number = (unsigned)value;
    return 1;
}

static int parse_option(int letter, const char *text, struct options *options) {
    unsigned device;
    switch (letter) {
    case 'b':
        return parse_bytes(text, &options->bytes);
    case 'c':
        return parse_number(text, &options->count);
    case 'n':
        return parse_number(text, &options->ns);
    case 'k':
        options->kind = text;
        return 1;
    case 'd':
        if (!parse_small(text, &device))
            return 0;
        options->device = (int)device;
        return 1;
    case 'p':
        return parse_small(text, &options->processes) && options->processes > 0;
    case 's':
        return parse_number(text, &options->seed);
    case 't':
        return parse_number(text, &options->seconds);
    case 'y':
        return parse_small(text, &options->sync_every);
    case 'v':
        return parse_number(text, &options->live);
    case 'l':
        return parse_bytes(text, &options->limit);
    default:
        return 0;
    }
}

int main(int argc, char **argv) {
    static const struct option names[] = {
        {"bytes", 1, NULL, 'b'}, {"count", 1, NULL, 'c'},   {"ns", 1, NULL, 'n'},
        {"kind", 1, NULL, 'k'},  {"device", 1, NULL, 'd'},  {"processes", 1, NULL, 'p'},
        {"seed", 1, NULL, 's'},  {"seconds", 1, NULL, 't'}, {"sync", 1, NULL, 'y'},
        {"limit", 1, NULL, 'l'}, {"live", 1, NULL, 'v'},    {"help", 0, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct options options = {
        .bytes = 64u << 20, .count = 1, .ns = 1000000, .seed = 1, .processes = 8, .kind = "linear"};
    int letter;
    while ((letter = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (letter == 'h') {
            usage(stdout);
            return 0;
        }
        if (!parse_option(letter, optarg, &options)) {
            if (letter != '?')
                fprintf(stderr, "gpubench: wrong value %s\n", optarg);
            usage(stderr);
            return 2;
        }
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (optind + 1 == argc && strcmp(argv[optind], commands[i].name) == 0)
            return driver_open() ? commands[i].run(&options) : 3;
    }
    usage(stderr);
    return 2;
}
