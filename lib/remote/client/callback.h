/* The program's functions that the driver calls, numbered. */
#ifndef DIVVY_REMOTE_CLIENT_CALLBACK_H
#define DIVVY_REMOTE_CLIENT_CALLBACK_H

#include "remote/client/client.h"

/* A function of the program's: one of both. */
struct remote_callback {
    CUhostFn plain;
    CUstreamCallback of_stream;
    void *data;
    CUstream stream; /* what the latter is told */
};

/* Numbers a function that is called once and is of no node; 0 if there is no memory. */
uint64_t remote_callback_keep(const struct remote_callback *callback);
/* The number of a function that a node may have, the same for the same function and data; 0 if there is no memory. Graphs
 * that are copied keep it, so it is kept until the process ends unless each use is taken back: what is captured is not. */
uint64_t remote_callback_share(CUhostFn function, void *data);
/* Takes back one use of a number. */
void remote_callback_unused(uint64_t number);
/* What a number stands for; false if for nothing. */
bool remote_callback_find(uint64_t number, CUhostFn *function, void **data);

#endif
