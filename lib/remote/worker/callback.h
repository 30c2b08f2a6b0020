/* Functions of the program that the driver calls through the worker. */
#ifndef DIVVY_REMOTE_WORKER_CALLBACK_H
#define DIVVY_REMOTE_WORKER_CALLBACK_H

#include "abi/generated/cuda_functions.h"
#include "remote/worker/session.h"

/* What the driver calls in place of a function, with what stands for it. */
void remote_due_call(void *due);
/* What stands for a function of this number that may be called again and again: one for each number, as long as the
 * process. NULL if there is no memory. */
void *remote_due_kept(struct remote_worker *worker, uint64_t function);
/* The number of a function that the driver tells of; 0 if it is none of the program's. */
uint64_t remote_due_number(CUhostFn function, const void *due);

/* callback_wait.c: threads of the driver that wait for the client. */
struct due_wait {
    struct due_wait *next;
    uint64_t ticket;
    bool returned;
};
/* Gives it a ticket. False if nobody returns it any more, because the link has ended. */
bool due_wait_begin(struct due_wait *wait);
/* Waits until it has returned, or the link has ended. Meanwhile it may take frames for the executor. */
void due_wait_end(struct remote_worker *worker, struct due_wait *wait);
void due_returned(uint64_t ticket);

#endif
