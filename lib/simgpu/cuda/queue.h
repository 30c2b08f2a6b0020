/* What streams and events know of the queue. */
#ifndef SIMGPU_CUDA_QUEUE_H
#define SIMGPU_CUDA_QUEUE_H

#include "simgpu/cuda/driver.h"

#define QUEUE_POLL_NS 100000u /* between looks at a value that a stream waits for */

/* Whether the channel has reached the position; else *left is the work before it. */
bool queue_reached(struct device *device, uint64_t position, uint64_t *left);
/* Waits until it has; no lock may be held. */
void queue_wait(struct device *device, uint64_t position);
/* The same for room in the stream's queue, where waking up late is harmless. */
void queue_wait_room(CUstream stream, uint64_t before);
/* An operation of another stream that comes first. The stream may be gone: its id tells. */
struct barrier {
    CUstream stream;
    unsigned long long id;
    uint64_t ticket;
};
/* The legacy stream and the blocking ones wait for each other: raises the stream's tail to theirs,
 * and tells them its own. */
void queue_follow(CUstream stream);
void queue_announce(CUstream stream);
/* Gives the channel work that follows the stream's. Returns the position that must be reached
 * before the caller may give more to this stream: the queue is bounded. The work lock. */
uint64_t queue_spend(CUstream stream, struct sg_work *work);
/* Sets the stream's tail to the end of one entry of its queue; returns the same as queue_spend.
 * The work lock. */
uint64_t queue_extend(CUstream stream, uint64_t end);
/* Whether something waits that comes before what the stream is given now. The work lock. */
bool queue_waits(CUstream stream);
/* Whether all values are what the operation waits for. */
bool queue_values_hold(const struct values *values);
/* Whether what a wait is for has been issued, and is done where another GPU does it; *left is a
 * bound on the time until then. The work lock. */
bool queue_wait_over(CUstream stream, const struct mark *mark, uint64_t *left);
/* Whether the first operation of a stream can be issued; *left as above. The work lock. */
bool queue_issuable(CUstream stream, const struct stream_op *op, uint64_t *left);
/* Whether the stream with that id has passed the operation; true when it is gone. The work lock. */
bool stream_passed(CUstream stream, unsigned long long id, uint64_t ticket);
/* Issues what can be issued and waits until something changes or 1 ms has passed. */
void queue_help(void);

/* ipc_event.c; the work lock: tells the others what was recorded, and reads what they recorded. */
void event_publish(const struct CUevent_st *event);
struct mark event_shared_mark(const struct CUevent_st *event);
bool event_shared_over(const struct mark *mark, uint64_t *left);
/* Ends the event for the others. */
void event_unshare(const struct CUevent_st *event);

/* event_record.c; the work lock: the record operation was issued now and ends at the position, or
 * waits in the stream. */
void event_issue(CUevent event, CUstream stream, uint64_t ticket, uint64_t position);
void event_defer(CUevent event, CUstream stream, uint64_t ticket);

#endif
