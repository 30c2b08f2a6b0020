/* What current.c and contexts.c know of each other. */
#ifndef DIVVY_REMOTE_CURRENT_H
#define DIVVY_REMOTE_CURRENT_H

#include "remote/client/client.h"

/* The context on top of the thread's others, though it may have ended; 0 for none. */
uint64_t current_top(void);
/* Puts one on top of them; false without memory. */
bool current_push(uint64_t number);
/* Removes the topmost, which must exist. */
void current_pop(void);

/* Counts what began and ended: as long as it stands, a thread's current context lives as it did. */
extern uint64_t contexts_changed;
/* Whether it is a context that lives: one that the program has made, or that the worker has told. */
bool context_lives(uint64_t number);

#endif
