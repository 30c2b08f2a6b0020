/* The options of gpubench; one struct for all commands, which share most of them. */
#ifndef GPUBENCH_OPTIONS_H
#define GPUBENCH_OPTIONS_H

#include <stdint.h>

struct options {
    uint64_t bytes;      /* size of one allocation or copy */
    uint64_t count;      /* how many allocations, launches or operations */
    uint64_t ns;         /* GPU time of one kernel; on a real GPU of each of its blocks */
    uint64_t loops;      /* `load`, `spin`, `graph`: a fixed amount of work instead of ns; 0 none */
    uint64_t seed;       /* of the pseudo-random sequence */
    uint64_t seconds;    /* how long `hold`, `load`, `serve`, `sweep` go on; 0 until told to stop */
    uint64_t live;       /* `cost`: allocations that stay live while one pair is timed */
    uint64_t limit;      /* `storm`: the share's bytes left for allocations, for judging refusals */
    uint64_t work_ms;    /* `load`: how long it works before it pauses; 0 never to pause */
    uint64_t pause_ms;   /* `load`, `sweep`: how long it pauses then */
    unsigned processes;  /* of `storm` */
    unsigned sync_every; /* synchronise after this many launches; 0 only at the end */
    int device;          /* ordinal as the driver shows it */
    unsigned grid;       /* blocks of one kernel */
    unsigned graph;      /* `load`: kernels of a graph that is launched in their place; 0 none */
    unsigned streams;    /* `load`, `rounds`: streams that take the launches in turn */
    unsigned threads;    /* `load`: threads that do the same, each with streams of its own */
    unsigned different; /* `load`, `rounds`: kernels of different names that are launched in turn */
    unsigned rate;      /* `serve`: requests per second */
    unsigned kernels;   /* `serve`: kernels of one request */
    uint64_t period_ms; /* `sweep`: from when one burst is due to the next; 0 only the pause */
    unsigned wait;      /* `sweep`: whether a byte of standard input lets it begin */
    unsigned pieces;    /* `sweep`: allocations that its memory consists of */
    unsigned steps;     /* `sweep`: how often it goes through its memory before it pauses */
    unsigned scatter;   /* `sweep`: random places in place of all of the memory; 0 all */
    const char *kind;   /* linear, async, managed, pitch, vmm, array; `bulk`: pinned, pageable */
};

/* Reads "4096", "512Ki", "8Mi" or "2Gi" into bytes. Returns 0 for another text or an overflow. */
int parse_bytes(const char *text, uint64_t *bytes);

/* Reads the options and returns the index of the first operand; -1 for --help, and -2 with a
 * message on stderr for a wrong option or value. */
int parse_options(int argc, char **argv, struct options *options);

/* The commands. Each prints JSON objects on stdout, the last of which is the summary, and returns
 * the exit status. */
int command_alloc(const struct options *options);
int command_hold(const struct options *options);
int command_copy(const struct options *options);
int command_spin(const struct options *options);
int command_graph(const struct options *options);
int command_fault(const struct options *options);
int command_load(const struct options *options);
int command_rounds(const struct options *options);
int command_await(const struct options *options);
int command_serve(const struct options *options);
int command_storm(const struct options *options);
int command_cost(const struct options *options);
int command_step(const struct options *options);
int command_calls(const struct options *options);
int command_bulk(const struct options *options);
int command_sweep(const struct options *options);
int command_churn(const struct options *options);
int command_start(const struct options *options);
int command_info(const struct options *options);
int command_nvml(const struct options *options);
int command_init(const struct options *options);

#endif
