/* What session, stream and their kin tell each other; no other file of the client needs it. */
#ifndef DIVVY_REMOTE_INSIDE_H
#define DIVVY_REMOTE_INSIDE_H

#include "remote/client/client.h"
#include "remote/client/hooks.h"

/* session.c: cuInit has succeeded. */
void remote_session_cuda(void);
/* nvmlInit has succeeded, 1, or nvmlShutdown, -1. */
void remote_session_nvml(int by);
/* One line on standard error, in one write; "divvy: " stands before it. */
__attribute__((format(printf, 1, 2))) void remote_say(const char *format, ...);

/* socket.c: the socket: a file beside the library, which nobody but who placed it can have put there; only where there is none,
 * what the environment says. */
#define REMOTE_PATH_BYTES 4096u
const char *remote_socket_path(char *room, size_t size);
/* Why the link of this process has ended, in words of a relay that left them beside the socket; false where none did. */
#define REMOTE_REASON_BYTES 448u
bool remote_socket_reason(const char *path, char reason[REMOTE_REASON_BYTES]);
/* The process of this share whose worker has that number on another host, as the relay says; 0 for any other worker. */
unsigned remote_socket_client(unsigned worker);
/* Whether the relay says of some worker that it is that process's. */
bool remote_socket_shares(unsigned process);

/* thread.c: how many threads have a number. */
uint32_t remote_thread_count(void);
/* Room for one frame, the calling thread's own; NULL without memory. */
unsigned char *remote_thread_frame(void);
/* Gives the thread this room in place of its own, which the caller has then. */
void remote_thread_frame_set(unsigned char *frame);
/* A detached thread of our own, which no signal of the program interrupts. */
bool remote_thread_start(void *(*run)(void *), void *argument);

/* copies_land.c: the bytes of a copy have come. Why the frame ends the link, NULL if it does not. */
const char *remote_landed(const struct remote_answer *head, const unsigned char *body);

/* stream.c: after so many nanoseconds what was posted is seen, through a socket; and without a record the worker gets a
 * sign of life. */
extern int64_t remote_gather_for;
extern int64_t remote_beat_after;

/* late.c: the fault of the current context that this call answers, 0 for none. */
int32_t remote_late_stands(enum remote_number number);

/* text.c: the version of the worker's driver, if it was asked; otherwise later than any. */
int remote_newest_known(void);
void remote_newest_set(int version);

/* What a thread did before it sent a record, such as the return of the program's function, a thread sees that gets a later
 * answer. The order goes through the worker, of which neither the compiler nor a checker of threads knows. */
extern uint64_t remote_sent; /* in thread.c; written with the lock of the stream */
static inline void remote_sent_note(uint64_t sequence) {
    __atomic_store_n(&remote_sent, sequence, __ATOMIC_RELEASE);
}
static inline void remote_sent_see(void) {
    (void)__atomic_load_n(&remote_sent, __ATOMIC_ACQUIRE);
}

#endif
