/* What session, stream and their kin tell each other; no other file of the client needs it. */
#ifndef DIVVY_REMOTE_INSIDE_H
#define DIVVY_REMOTE_INSIDE_H

#include "remote/client/client.h"

/* session.c: forgets the connection in the child of a fork. The child of a process that called cuInit is refused
 * everything; another may connect anew. */
void remote_session_forked(void);
/* cuInit has succeeded. */
void remote_session_cuda(void);
/* nvmlInit has succeeded, 1, or nvmlShutdown, -1. */
void remote_session_nvml(int by);
/* One line on standard error, in one write; "divvy: " stands before it. */
__attribute__((format(printf, 1, 2))) void remote_say(const char *format, ...);

/* fork.c: has the child of each fork forget what is the parent's. Called once. */
void remote_fork_watch(void);
/* This process is the child of a fork that no handler told of. */
void remote_forked(void);

/* stream.c */
void remote_stream_begin(struct remote_link *link);
void remote_stream_forked(void);

/* A detached thread of our own, which no signal of the program interrupts. */
bool remote_thread_start(void *(*run)(void *), void *argument);

/* wait.c: starts the thread for notices, if somebody registered for one. */
void remote_wait_begin(struct remote_link *link);
void remote_wait_forked(void);

/* thread.c: how many threads have a number. */
uint32_t remote_thread_count(void);
/* Room for one frame, the calling thread's own; NULL without memory. */
unsigned char *remote_thread_frame(void);
/* Gives the thread this room in place of its own, which the caller has then. */
void remote_thread_frame_set(unsigned char *frame);

/* names.c: the version of the worker's driver, if it was asked; otherwise later than any. */
int remote_newest_known(void);

/* late.c, numbers.c */
void remote_late_forked(void);
void remote_numbers_forked(void);

#endif
