/* Processes that others lock, save and restore, with memory of every kind. */
#ifndef SIMGPU_CUDA_TEST_CONTROLLED_H
#define SIMGPU_CUDA_TEST_CONTROLLED_H

#include "simgpu/cuda/test/cuda.h"

#define PIECE (BLOCK + 4096)

struct memory {
    CUdeviceptr small, own, pooled, mapped, graphed;
    CUarray array;
    CUgraph graph;
    CUgraphExec exec;
    CUmemGenericAllocationHandle spare;
};
/* Allocates it in the current context. */
void memory_allocate(struct memory *m);
void memory_free(const struct memory *m);
/* Fills all of it with bytes that depend on the seed. */
void memory_fill(const struct memory *m, unsigned char seed);
/* How many bytes are not as memory_fill left them. */
uint64_t memory_wrong(const struct memory *m, unsigned char seed);
/* How many bytes at a device address are others. */
uint64_t bytes_wrong(CUdeviceptr at, uint64_t bytes, unsigned char want);

/* The true bytes of all processes on GPU 0; the table of blocks says the same. */
uint64_t gpu_used(void);

/* What a controlled process is told, a letter each. It answers with the same letter when it has done so. */
enum {
    TELL_BEGIN = 'b',   /* starts the driver, and allocates and fills its memory; the first */
    TELL_LOOK = 'l',    /* looks through it; a wrong byte ends the process */
    TELL_FILL = 'f',    /* fills it with the next seed */
    TELL_SHARE = 's',   /* exports a part of it */
    TELL_MANAGED = 'm', /* allocates managed memory */
    TELL_WORK = 'w',    /* launches 20 ms of work */
    TELL_STUCK = 'k',   /* launches an hour of work, and waits for it */
};

struct controlled {
    pid_t pid;
    int channel;
};
/* Forks a process that runs the body with its end of a channel: before the caller uses the driver, for who has used it can
 * make none that does. */
struct controlled controlled_fork(void (*body)(int channel));
void controlled_live(int channel); /* a body that obeys */
void controlled_say(const struct controlled *c, char word);
void controlled_hear(const struct controlled *c, char word);
void controlled_tell(const struct controlled *c, char word); /* both */
bool controlled_silent(const struct controlled *c); /* it has said nothing that was not heard */
bool controlled_waits(
    const struct controlled *c); /* its first thread sleeps until memory changes */
void controlled_kill(const struct controlled *c);

#endif
