/* What of a GPU an operation occupies, and when it can begin.
 *
 * Time here is a channel's own: it passes only while the process has the GPU and executes
 * something. An operation gets its place when it is issued, behind what was issued before it, so
 * the order of issue decides and nothing has to be simulated in the background. Every operation
 * begins now or where another one ends: the channel's own time has no gaps.
 *
 *  - A kernel takes one multiprocessor for each of its blocks, at most all of them, from its begin
 *    to its end. Kernels run at once as long as multiprocessors are free; one that needs all of
 *    them excludes the others.
 *  - Copies from and to the host take the copy engine of their direction, one after another.
 *  - The record of an event takes time and nothing else.
 */
#ifndef SIMGPU_ENGINES_H
#define SIMGPU_ENGINES_H

#include <stdint.h>

#define SG_MULTIPROCESSORS_MAX 1024u

enum sg_engine {
    SG_ON_NONE,
    SG_ON_MULTIPROCESSORS,
    SG_ON_COPY_IN,  /* host to device */
    SG_ON_COPY_OUT, /* device to host, and to other devices */
};

/* One operation. */
struct sg_work {
    uint64_t ns;
    uint64_t after; /* the position at which the last thing it waits for ends */
    enum sg_engine engine;
    uint32_t multiprocessors; /* how many it takes, at least 1 */
};

/* When the parts of one GPU become free, as far as one process gives them work. */
struct sg_engines {
    uint32_t multiprocessors; /* of the GPU, 1 to SG_MULTIPROCESSORS_MAX */
    uint32_t group_count;
    struct {
        uint64_t free; /* the position at which they are */
        uint32_t multiprocessors;
    } groups[SG_MULTIPROCESSORS_MAX + 1]; /* by position, ascending */
    uint64_t copies_free[2];
};

void sg_engines_start(struct sg_engines *engines, uint32_t multiprocessors);
/* Gives the work its place, with everything up to `done` executed; returns where it ends. */
uint64_t sg_place(struct sg_engines *engines, uint64_t done, const struct sg_work *work);

#endif
