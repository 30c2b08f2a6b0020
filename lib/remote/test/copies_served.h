/* A worker of its own for a test of copies. */
#ifndef DIVVY_REMOTE_TEST_COPIES_SERVED_H
#define DIVVY_REMOTE_TEST_COPIES_SERVED_H

#include "remote/generated/cuda_decode.h"

#include <sys/types.h>

/* Makes a folder with the client's libraries, beside which a worker listens. It ends with this process. */
void copies_start_worker(void);
void copies_end_worker(void);
/* Kills the worker. Of an earlier client's, which is killed with it, nothing is needed any more. */
void copies_kill_worker(void);
/* Connects to it as a client does. */
int copies_connect(void);
/* A child that does not keep the worker. */
pid_t copies_fork(void);
/* Loads the driver's library in a folder, in a process that has none; finds its functions. */
void copies_open(const char *folder);
void *copies_find(const char *name);
extern char copies_folder[256];

/* The test itself: loads the client or the simulated driver, in a child. */
void copies_load(bool remote, struct remote_cuda_driver *driver);

/* copies_compare.c */

/* Waits for a child, which has to succeed. */
void copies_wait(pid_t child);
/* Does so many steps in two processes, directly and through client and worker, and compares what they see after each. */
void copies_compare(bool strict, uint64_t steps);
/* Whether host memory has no address of the device. */
extern bool copies_map_nothing;

#endif
