/* What streams and events know of the queue. */
#ifndef SIMGPU_QUEUE_H
#define SIMGPU_QUEUE_H

#include "simgpu/driver.h"

/* Whether the channel has reached the position; else *left is the work before it. */
bool queue_reached(struct device *device, uint64_t position, uint64_t *left);
/* Waits until it has; no lock may be held. */
void queue_wait(struct device *device, uint64_t position);
/* Whether the stream with that id has passed the operation; true when it is gone. The work lock. */
bool stream_passed(CUstream stream, unsigned long long id, uint64_t ticket);
/* Issues what can be issued and waits until something changes or 1 ms has passed. */
void queue_help(void);

/* event.c; the work lock: the record operation was issued now, or waits in the stream. */
void event_issue(CUevent event, CUstream stream, uint64_t ticket);
void event_defer(CUevent event, CUstream stream, uint64_t ticket);

#endif
