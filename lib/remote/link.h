/* A link between a client process and its worker: frames there, frames back, each in order. A frame is a record or an
 * answer. On one host frames travel through rings in shared memory; otherwise through a socket that leads to a relay. */
#ifndef DIVVY_REMOTE_LINK_H
#define DIVVY_REMOTE_LINK_H

#include "remote/record.h"

struct remote_link;

/* What is written into `why` on failure ends without a newline. */
#define REMOTE_WHY_BYTES 256u

/* The client's end: connects to a Unix socket at this path, and agrees on protocol and rings. NULL on failure. */
struct remote_link *remote_link_connect(const char *path, char why[REMOTE_WHY_BYTES]);
/* The worker's end, on a connected socket, which belongs to the link then. NULL on failure. */
struct remote_link *remote_link_accept(int socket, char why[REMOTE_WHY_BYTES]);

/* Appends a frame: its head, and pieces that are each followed by zeros up to 8 bytes. Waits for room. Several threads
 * must not call it at once. False when the link has ended. The other side need not see it before a flush. */
bool remote_link_put(struct remote_link *link, const void *head, size_t head_size,
                     const struct remote_piece *pieces, size_t count);
/* Has the other side see what was put. */
void remote_link_flush(struct remote_link *link);

enum remote_taken { REMOTE_TAKEN, REMOTE_NOTHING_YET, REMOTE_ENDED };
/* Copies the next frame to `to`, which has room for REMOTE_RECORD_BYTES; `size` is then its size. A frame that says
 * another size than a record may have ends the link. Waits no longer than `nanoseconds`, for ever if negative: it spins
 * briefly, then yields, then sleeps. Several threads must not call it at once. */
enum remote_taken remote_link_take(struct remote_link *link, void *to, size_t *size,
                                   int64_t nanoseconds);

/* Memory that both sides see, for bytes beside the frames; NULL where there is none. Who reads it must not believe that
 * it stays as it is. */
void *remote_link_area(struct remote_link *link, size_t *size);
/* Passes a descriptor under a number of the client's choice, before the frame that names it; false where the two sides
 * are on different hosts. */
bool remote_link_give(struct remote_link *link, uint64_t number, int descriptor);
/* The descriptor that was passed under a number, which is the caller's then; -1 if none was. */
int remote_link_receive(struct remote_link *link, uint64_t number);

/* Ends the link for both sides; whoever waits on it hears of it. Any thread may call it, several times. */
void remote_link_end(struct remote_link *link);
bool remote_link_ended(const struct remote_link *link);
/* Forgets the link in a child after fork: closes what the child has of it without a byte to the worker. */
void remote_link_abandon(struct remote_link *link);
/* Ends and frees it, once nobody uses it. */
void remote_link_free(struct remote_link *link);

#endif
