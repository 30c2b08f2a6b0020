/*
 * gpubench: a small client of the CUDA driver API for demonstrations, tests and measurements.
 * Commands print JSON, one object in each line, the last of which is the summary. Exit status: 0
 * done, 1 a driver call failed (the object says which and why), 2 wrong usage, 3 no driver.
 */
#include "driver.h"
#include "options.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(const struct options *);
    const char *help;
} commands[] = {
    {"info", command_info, "what the driver shows: devices, memory"},
    {"nvml", command_nvml, "what NVML shows: devices, memory"},
    {"init", command_init, "processor time of opening and initialising the driver"},
    {"alloc", command_alloc, "allocate --count times --bytes of --kind, then free it all"},
    {"hold", command_hold, "allocate --bytes and hold it until end of input, SIGTERM or --seconds"},
    {"copy", command_copy, "copy --bytes to the GPU, within it and back, and compare"},
    {"spin", command_spin, "launch --count kernels of --ns GPU time each"},
    {"graph", command_graph, "the same as a CUDA graph of --count kernels"},
    {"fault", command_fault, "a kernel that writes to an unmapped address"},
    {"load", command_load,
     "launch kernels of --ns and --grid, or graphs of --graph such kernels, on --streams in\n"
     "         turn, with --sync, until SIGTERM or --seconds; --work and --pause (ms) alternate;\n"
     "         --threads do so at once; --different kernels"},
    {"rounds", command_rounds,
     "launch each of --different kernels of --ns once, --count times over; time of each round"},
    {"await", command_await,
     "a kernel that waits for another stream's kernel, --count times; time of each pair"},
    {"serve", command_serve,
     "requests of --kernels of --ns at random moments, --rate a second, the same for the\n"
     "         same --seed; latency from the moment a request comes"},
    {"storm", command_storm, "--processes race through --count allocations of mixed sizes"},
    {"cost", command_cost, "time per allocation with --live others, and per launch"},
    {"step", command_step,
     "294 launches of --ns, 8 copies of 16 KiB and 4 waits, --count times; time of each step"},
    {"calls", command_calls, "time of calls that wait for an answer, --count of each"},
    {"bulk", command_bulk,
     "copy --bytes from memory that is pinned or pageable and back, --count times"},
    {"sweep", command_sweep,
     "allocate --bytes in --pieces, mark them, go through them in --count bursts (0: until\n"
     "         SIGTERM or --seconds) of --steps, each of --ns GPU time, or to --scatter random\n"
     "         places, with --pause ms after each burst or one due every --period ms; compare;\n"
     "         --wait 1 until standard input lets it begin"},
    {"churn", command_churn,
     "allocate up to --bytes --count times (0: until SIGTERM), go through it for --ns, free"},
    {"start", command_start, "time of cuInit and of the first context"},
};

static void usage(FILE *out) {
    fputs("usage: gpubench COMMAND [--bytes 64Mi] [--count N] [--ns N] [--kind KIND] [--device N]\n"
          "                [--processes N] [--seed N] [--seconds N] [--sync N] [--limit BYTES] "
          "[--live N]\n"
          "                [--grid N] [--graph N] [--streams N] [--work MS] [--pause MS]\n"
          "                [--rate N] [--kernels N] [--loops N] [--threads N] [--different N]\n"
          "                [--pieces N] [--steps N] [--scatter N] [--period MS] [--wait 1]\n"
          "kinds: linear async managed pitch vmm array, of bulk pinned pageable\n\ncommands:\n",
          out);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        fprintf(out, "  %-6s %s\n", commands[i].name, commands[i].help);
    }
}

int main(int argc, char **argv) {
    struct options options = {.bytes = 64u << 20,
                              .count = 1,
                              .ns = 1000000,
                              .seed = 1,
                              .processes = 8,
                              .kind = "linear",
                              .grid = 1,
                              .streams = 1,
                              .threads = 1,
                              .different = 1,
                              .pieces = 1,
                              .steps = 1,
                              .rate = 25,
                              .kernels = 20};
    int operands = parse_options(argc, argv, &options);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (operands >= 0 && operands + 1 == argc &&
            strcmp(argv[operands], commands[i].name) == 0) {
            return driver_open() ? commands[i].run(&options) : 3;
        }
    }
    usage(operands == -1 ? stdout : stderr);
    return operands == -1 ? 0 : 2;
}
