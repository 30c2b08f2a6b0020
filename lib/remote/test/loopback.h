/* A client and a worker in one process: the transport, and the tables of handles of both sides. */
#ifndef DIVVY_REMOTE_TEST_LOOPBACK_H
#define DIVVY_REMOTE_TEST_LOOPBACK_H

#include "remote/call.h"
#include "remote/generated/decode.h"

/* The decoder through which every record goes. */
extern struct remote_decoder loopback;
/* What became of the last record. */
extern enum remote_outcome loopback_outcome;
/* Whether posted calls wait. */
extern bool loopback_strict;
/* Whether the link has ended. */
extern bool loopback_dead;
/* What every call answers before anything is sent; 0 for nothing. */
extern int32_t loopback_gate;
/* Whether work for later has answered: the answer is the loopback's then. */
extern bool loopback_said;
/* The first late error, and the last notice. */
extern int32_t loopback_late;
extern struct remote_answer loopback_notice;
/* What a worker's executor does before a record, whose context it may change, and after it; NULL for nothing. */
extern void (*loopback_enter)(struct remote_head *head);
extern void (*loopback_leave)(void);
/* Changes an answer and what the client is told of its size before it reads it; NULL leaves it. */
extern void (*loopback_spoil)(struct remote_answer *head, unsigned char *body, size_t *size);
/* The last record as it was sent, and its size. */
extern unsigned char *loopback_record;
extern size_t loopback_size;
/* How many records were sent, and answered; how often bytes were sent beside them. */
extern unsigned long loopback_sent, loopback_bulk;

void loopback_start(const struct remote_cuda_driver *cuda, const struct remote_nvml_driver *nvml);
/* Forgets all handles. */
void loopback_forget(void);
/* The client's number of a driver's handle, and back; 0 for a number that nobody knows. */
uint64_t loopback_number(enum remote_kind kind, uint64_t handle);
uint64_t loopback_handle(enum remote_kind kind, uint64_t number);

#endif
