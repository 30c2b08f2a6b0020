/* The table of contexts, and those that are current to a thread. */
#ifndef DIVVY_REMOTE_CURRENT_H
#define DIVVY_REMOTE_CURRENT_H

#include "remote/client/client.h"

/* current.c */

/* The context on top of the thread's others, though it may have ended; 0 for none. */
uint64_t current_top(void);
/* Puts one on top of them; false without memory. */
bool current_push(uint64_t number);
/* Removes the topmost, which must exist. */
void current_pop(void);

/* contexts.c */

/* Counts what began and ended: as long as it stands, a thread's current context lives as it did. */
extern uint64_t contexts_changed;
/* Whether it is a context that lives: one that the program has made, or that the worker has told. */
bool context_lives(uint64_t number);
/* Notes that one begins, or is used once more; false without memory. */
bool context_begin(uint64_t number, CUdevice device, bool primary);
/* Notes that the program was told of a fault, after which the driver answers every call in this context so. The answer then,
 * 0 for none; one load as long as there is none in any. */
void context_fault(uint64_t number, int32_t error);
int32_t context_fault_of(uint64_t number);
/* Notes that one has ended. */
void context_end(uint64_t number);
/* Whether it lives; a record must not go with one that may have ended. */
void context_doubt(uint64_t number, bool alive);
/* Counts one use of an ordinary context more or less. True if it was the last. */
bool context_use(uint64_t number, bool more);
/* Counts one use of a device's primary context less, if the call succeeded and it cannot be the last: otherwise `last` is
 * true then. Its number, 0 if none lives. */
uint64_t context_release(CUdevice device, bool succeeded, bool *last);

#endif
