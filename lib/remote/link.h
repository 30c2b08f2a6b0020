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
/* The worker's end, on a connected socket, which belongs to the link from then on. NULL on failure, which closes it. */
struct remote_link *remote_link_accept(int socket, char why[REMOTE_WHY_BYTES]);

/* Appends a frame: its head, and pieces that are each followed by zeros up to 8 bytes. Waits for room. Several threads
 * must not call it, or flush, at once. False when the link has ended. The other side need not see it before a flush. */
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
/* Passes a descriptor under a number of the client's choice, before the frame that names it is put; false where the two
 * sides are on different hosts, or the kernel refuses. The caller keeps its own. Who puts may call it. */
bool remote_link_give(struct remote_link *link, uint64_t number, int descriptor);
/* The descriptor that was passed under a number, which is the caller's then; -1 if none was. Any thread may call it. */
int remote_link_receive(struct remote_link *link, uint64_t number);

/* Ends the link for both sides; whoever waits on it hears of it. Any thread may call it, several times. */
void remote_link_end(struct remote_link *link);
bool remote_link_ended(const struct remote_link *link);
/* Waits until either side has ended the link or is gone. Any thread may call it. What the other side put before may still
 * be taken: who must not go on then, such as a worker that is blocked in the driver, has a thread that waits here. */
void remote_link_await_end(struct remote_link *link);
/* Whether it ended because the other side went, which is no fault of either. */
bool remote_link_left(const struct remote_link *link);
/* Why it ended, in words of the side that asks; NULL while it has not, or if this side ended it. */
const char *remote_link_why(const struct remote_link *link);
/* Forgets the link in a child after fork: closes and unmaps what the child has of it, without a byte to the worker and
 * without a lock, whatever the parent's threads were doing. */
void remote_link_abandon(struct remote_link *link);
/* Ends and frees it, once nobody uses it. */
void remote_link_free(struct remote_link *link);

#endif
