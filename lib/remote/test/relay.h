/* A relay between a client and its worker, as if they were on two machines: it has the client speak through a stream. */
#ifndef DIVVY_REMOTE_TEST_RELAY_H
#define DIVVY_REMOTE_TEST_RELAY_H

#include <stdint.h>

/* Starts one between this process's client, which has not connected yet, and the worker of apart_start. */
void relay_start(void);
/* How many bytes the client has sent through it. */
uint64_t relay_sent(void);
/* Ends it; to be called before apart_end. */
void relay_end(void);

#endif
