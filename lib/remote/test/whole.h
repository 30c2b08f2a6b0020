/* A program's side of the real thing: the client library, a worker on this host, and the simulated driver behind it; or the
 * simulated driver alone. */
#ifndef DIVVY_REMOTE_TEST_WHOLE_H
#define DIVVY_REMOTE_TEST_WHOLE_H

#include "abi/generated/cuda_functions.h"

#include <stdbool.h>
#include <sys/types.h>

#define WHOLE_POINTER(name) __typeof__(name) *name;
struct whole {
#define X WHOLE_POINTER
#include "remote/test/whole_functions.inc"
#undef X
};
extern struct whole cu;

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)

/* Describes a machine, and starts a worker's listener that ends with this process. Called once, before any of the
 * following, in a process that has no driver loaded. */
void whole_start(void);
/* Loads the simulated driver, or the client. The process can do this once. */
void whole_load(bool remote);
/* Runs a function in a process of its own, with the driver or the client loaded. How it ended, as waitpid tells it. */
int whole_run(bool remote, void (*run)(void *argument), void *argument);
/* Memory that such processes write for this one. */
void *whole_share(size_t size);
/* Waits until no process has a worker any more. */
void whole_await_no_worker(void);
/* Kills the worker of the calling process. */
void whole_kill_worker(void);

#endif
