/* Two sides of a link for tests, in two processes or in one. */
#ifndef DIVVY_REMOTE_TEST_SIDES_H
#define DIVVY_REMOTE_TEST_SIDES_H

#include <sys/types.h>

#include "remote/link_inside.h"

/* A process that has the worker's end, does this, and ends with its result. The client's end is returned. */
typedef int sides_worker(struct remote_link *link);
struct remote_link *sides_start(enum remote_link_kind kind, sides_worker *worker, pid_t *process);
/* Waits for the process: its exit status, or 256 and the signal that ended it. */
int sides_wait(pid_t process);

/* Both ends in this process. */
void sides_both(enum remote_link_kind kind, struct remote_link **client,
                struct remote_link **worker);

/* Frame `index` of a run: random bytes and size, the same whenever it is asked for, in pieces. */
struct sides_frame {
    struct remote_head head;
    struct remote_piece pieces[REMOTE_MOST_PIECES];
    size_t count;
    unsigned char bytes[REMOTE_RECORD_BYTES];
};
void sides_frame(struct sides_frame *frame, uint64_t index);
/* Checks that what was taken is frame `index`. */
void sides_check(const unsigned char *taken, size_t size, uint64_t index);
/* Keeps the calling thread on one core; threads with 0 and 1 run at once where there are two. */
void sides_run_on(size_t which);
/* How many descriptors this process has. */
size_t sides_descriptors(void);

#endif
