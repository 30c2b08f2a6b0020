/*
 * What becomes of the library in the child of a fork.
 *
 * The child can use the driver only if the parent had not initialised it, and what the parent
 * allocated is not the child's. So every file that keeps something forgets it there. Locks are made
 * free, because the thread that held one may not exist in the child.
 */
#ifndef DIVVY_CUDA_FORK_H
#define DIVVY_CUDA_FORK_H

#include "cuda/event.h"

/* This process is the child of a fork. Listeners reset what is theirs and call nobody else. */
EVENT(forked, (void));

/* Tells of forks from now on; called once. */
DV_HIDDEN void fork_watch(void);

#endif
