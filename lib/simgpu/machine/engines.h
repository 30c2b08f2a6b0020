/* Which part of a GPU an operation occupies, and when it can begin.
 *
 * Time here is a channel's own: it passes only while the process has the GPU and executes
 * something. An operation is scheduled when it is issued, after those issued before it, so nothing
 * has to be simulated in the background. Every operation begins now or where another one ends: the
 * channel's own time has no gaps.
 *
 *  - A kernel takes one multiprocessor for each of its blocks, at most all of them, from its begin
 *    to its end. Where the process may occupy fewer it takes those, and as much longer. It begins at the earliest moment from which they are free until its end, without
 *    moving what is scheduled. Small kernels run at once and fill gaps; one that needs all
 *    multiprocessors runs alone.
 *  - Copies from and to the host take the copy engine of their direction, one after another.
 *  - The record of an event takes time and nothing else.
 */
#ifndef SIMGPU_MACHINE_ENGINES_H
#define SIMGPU_MACHINE_ENGINES_H

#include <stdint.h>

struct sg_touch;

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
    uint32_t touch_count;     /* areas of managed memory that it goes through while it runs */
    const struct sg_touch *touches;
};

#define SG_PROFILE_POINTS 4096u

/* What one process's work occupies of one GPU, now and later. Others read it, also when its owner died
 * while changing it. */
struct sg_engines {
    uint32_t whole; /* multiprocessors of the GPU, */
    uint32_t
        multiprocessors; /* and how many of them the process may occupy at once; 0 is not started */
    uint32_t first, count; /* the points in use; past ones are dropped */
    struct sg_profile_point {
        uint64_t from; /* rising; the last one's multiprocessors are 0 */
        uint32_t used;
    } points[SG_PROFILE_POINTS];
    uint64_t copies_free[2]; /* the positions at which the copy engines are free */
};

void sg_engines_start(struct sg_engines *engines, uint32_t multiprocessors);
/* Leaves fewer of them for work that is placed from now on, at least 1. */
void sg_engines_limit(struct sg_engines *engines, uint32_t multiprocessors);
/* How many multiprocessors are occupied at a time, and when that changes; UINT64_MAX is never. */
uint32_t sg_engines_used(const struct sg_engines *engines, uint64_t at, uint64_t *change);
/* How long each multiprocessor is occupied between two times, summed. */
uint64_t sg_engines_area(const struct sg_engines *engines, uint64_t from, uint64_t to);
/* How long the work takes on the multiprocessors that it may occupy. */
uint64_t sg_work_ns(const struct sg_engines *engines, const struct sg_work *work);
/* Schedules the work after everything up to `done` has executed; returns where it ends. */
uint64_t sg_place(struct sg_engines *engines, uint64_t done, const struct sg_work *work);

#endif
