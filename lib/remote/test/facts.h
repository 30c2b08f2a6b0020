/* The client's contexts, addresses and facts of devices in one process with the worker: the session they stand on, a
 * worker's executor in little, and reservations that are only noted, because the simulated GPUs have their addresses in
 * this process. */
#ifndef DIVVY_REMOTE_TEST_FACTS_H
#define DIVVY_REMOTE_TEST_FACTS_H

#include "remote/client/client.h"
#include "remote/test/loopback.h"

/* Whether both sides share memory. */
extern bool facts_shared;
/* Whether the next reservations are refused: so many. */
extern unsigned facts_taken;
/* Bytes that are reserved now. */
extern uint64_t facts_reserved;

/* Begins with a driver that is loaded. */
void facts_start(const struct remote_cuda_driver *driver);

/* Runs a test in a process of its own, with a machine and a client that knows nothing yet. */
void facts_run(void (*test)(void));

#endif
