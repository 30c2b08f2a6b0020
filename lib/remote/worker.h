/* What the worker's generated decoders stand on: the numbers of handles and the bytes that came beside the stream. */
#ifndef DIVVY_REMOTE_WORKER_H
#define DIVVY_REMOTE_WORKER_H

#include "remote/generated/numbers/numbers.h"
#include "remote/record.h"

struct remote_worker;

/* The driver's handle of a number; false if the number names none of this kind. NULL and the fixed numbers are not asked. */
bool remote_worker_resolve(struct remote_worker *worker, enum remote_kind kind, uint64_t number,
                           uint64_t *handle);
/* Whether a client can choose this number, and there is room for it: asked before the driver makes something. */
enum remote_room { REMOTE_ROOM, REMOTE_FULL, REMOTE_NO_NUMBER };
enum remote_room remote_worker_room(struct remote_worker *worker, enum remote_kind kind,
                                    uint64_t number);
/* Notes that a number which the client chose is this handle. False if it cannot be chosen. */
bool remote_worker_bind(struct remote_worker *worker, enum remote_kind kind, uint64_t number,
                        uint64_t handle);
/* The number of a handle that the driver told, which gets one if it has none: its own value where the kind says so. */
uint64_t remote_worker_number(struct remote_worker *worker, enum remote_kind kind, uint64_t handle);
/* The newest number of a handle, 0 if it has none. */
uint64_t remote_worker_known(struct remote_worker *worker, enum remote_kind kind, uint64_t handle);
/* Forgets a number, whose handle has ended. */
void remote_worker_unbind(struct remote_worker *worker, enum remote_kind kind, uint64_t number);
/* The stream that stands for CU_STREAM_PER_THREAD of a thread of the client, in its context; 0 if the driver refuses. */
uint64_t remote_worker_thread_stream(struct remote_worker *worker, uint32_t thread,
                                     uint64_t context);
/* Why the driver refuses it in the current context. */
int32_t remote_worker_no_stream(struct remote_worker *worker);
/* The bytes that were sent beside the stream, if they are so many; otherwise NULL. No client can change them. */
const void *remote_worker_bulk(struct remote_worker *worker, uint64_t number, uint64_t size);
/* Keeps a copy of code that was sent or made, if both sides share no memory and it is neither small nor large. */
void remote_worker_code_keep(struct remote_worker *worker, const void *code, size_t size);
/* The code of a number that the client was told, if it is so long; NULL if it is not kept any more. */
const void *remote_worker_code(struct remote_worker *worker, uint64_t number, uint64_t size);

#endif
