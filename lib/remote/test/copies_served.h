/* A worker of its own for a test of copies. */
#ifndef DIVVY_REMOTE_TEST_COPIES_SERVED_H
#define DIVVY_REMOTE_TEST_COPIES_SERVED_H

#include "remote/generated/cuda_decode.h"

#include <sys/types.h>

/* Makes a folder with the client's libraries, beside which a worker listens. It ends with this process. */
void copies_start_worker(void);
void copies_end_worker(void);
/* The one worker that the listener has. */
pid_t copies_find_worker(void);
/* Loads the client or the simulated driver in a child of this process, which has neither. */
void copies_load(bool remote, struct remote_cuda_driver *driver);

#endif
