/* What a gpubench command may be told; one struct, because the commands share most of it. */
#ifndef GPUBENCH_OPTIONS_H
#define GPUBENCH_OPTIONS_H

#include <stdint.h>

struct options {
    uint64_t bytes;      /* size of one allocation or copy */
    uint64_t count;      /* how many allocations, launches or operations */
    uint64_t ns;         /* GPU time of one kernel */
    uint64_t seed;       /* of the pseudo-random sequence */
    uint64_t seconds;    /* how long `hold` holds at most; 0 until told to stop */
    unsigned processes;  /* of `storm` */
    unsigned sync_every; /* synchronise after this many launches; 0 only at the end */
    int device;          /* ordinal as the driver shows it */
    const char *kind;    /* linear, async, managed, pitch, vmm, array */
    uint64_t live;       /* `cost`: allocations that stay live while one pair is timed */
    uint64_t limit;      /* `storm`: the share's bytes left for allocations, for judging refusals */
};

/* Reads "4096", "512Ki", "8Mi" or "2Gi" into bytes; 0 when the text is none of these or overflows.
 */
int parse_bytes(const char *text, uint64_t *bytes);

/* The commands; each prints one JSON object on stdout and returns the exit status. */
int command_alloc(const struct options *options);
int command_hold(const struct options *options);
int command_copy(const struct options *options);
int command_spin(const struct options *options);
int command_graph(const struct options *options);
int command_storm(const struct options *options);
int command_cost(const struct options *options);
int command_info(const struct options *options);
int command_init(const struct options *options);

#endif
