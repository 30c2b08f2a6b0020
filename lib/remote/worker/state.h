/* A worker from within. Its parts know each other through session.h and through what is here. The order of locks: the
 * posted copies, then the answers, then the streams of threads, then the table of handles. None is held across a call of the
 * driver, but for that of the copies, whose events are asked under it, and that of the streams, which are made and ended under it. */
#ifndef DIVVY_REMOTE_STATE_H
#define DIVVY_REMOTE_STATE_H

#include "remote/worker/session.h"

/* What a thread of the worker has as its current context: a handle of the driver. */
struct remote_current {
    uint64_t handle;
    uint64_t
        ends; /* the worker's count then: a new context may have the handle of one that has ended */
    bool known; /* false where the driver may have changed it */
};

struct remote_worker {
    struct remote_link *link;
    struct remote_decoder decoder; /* of the executor */
    struct remote_current current; /* of the executor */
    uint64_t context_ends;         /* how many contexts other threads have begun to end */
    struct remote_cuda_driver cuda;
    struct remote_nvml_driver nvml;
    struct remote_table *table;
    struct remote_answers *answers;
    struct remote_waits *waits;
    struct remote_streams *streams;
};

/* executor.c */

/* A worker on a link, with functions of a driver that is loaded. NULL where there is no memory. */
struct remote_worker *remote_worker_new(struct remote_link *link,
                                        const struct remote_cuda_driver *cuda,
                                        const struct remote_nvml_driver *nvml);
/* Serves the client until the link has ended, or has to: `why` is empty if it was the client who ended it. */
void remote_worker_run(struct remote_worker *worker, char why[REMOTE_WHY_BYTES]);
/* Frees it, after all work for later has been done. */
void remote_worker_free(struct remote_worker *worker);

/* decode.c */

/* The memory of a decoder. False where there is none. */
bool remote_decoder_room(struct remote_decoder *decoder);
/* Calls the decoder of the record, of so many bytes, that lies in the decoder's memory. */
enum remote_outcome remote_decode_record(struct remote_decoder *decoder, size_t size);

/* aside.c */

/* Has another thread execute the executor's record, whose call may block: it reads and judges the record before this returns,
 * and answers when the driver does. False if there is no thread or no memory for it: then nothing has happened. */
bool remote_worker_aside(struct remote_worker *worker, size_t size, enum remote_outcome *outcome);

/* session.c */

/* Makes the context with this number current to the calling thread, or none where the number names none: then the driver
 * itself answers what needs a context with CUDA_ERROR_INVALID_CONTEXT. */
void remote_worker_enter(struct remote_worker *worker, struct remote_current *current,
                         uint64_t number);

/* table.c */
struct remote_table *remote_table_new(void);
/* Unbinds a number that the client has chosen while the driver ends its handle, which it may give to something else before it
 * says so. False if there is no such number. */
bool remote_worker_suspend(struct remote_worker *worker, enum remote_kind kind, uint64_t number,
                           uint64_t *handle);
void remote_table_free(struct remote_table *table);

/* answer.c */
struct remote_answers *remote_answers_new(void);
void remote_answers_free(struct remote_answers *answers);
/* Sends the answer that a decoder has written, or keeps its error if the record was posted. */
void remote_worker_answer(const struct remote_decoder *decoder);

/* wait.c */
struct remote_waits *remote_waits_new(void);
/* Waits until all work is done, and ends the threads. */
void remote_waits_free(struct remote_waits *waits);

/* thread.c */
struct remote_streams *remote_streams_new(void);
void remote_streams_free(struct remote_streams *streams);
/* The number of a stream that stands for that of a thread, 0 for any other. */
uint64_t remote_streams_number(struct remote_streams *streams, uint64_t handle);
/* Forgets the streams of a context that has ended, and those of a device's primary context if that has. */
void remote_streams_forget(struct remote_streams *streams, uint64_t context);
void remote_streams_forget_device(struct remote_worker *worker, CUdevice device);
/* Has a call that takes no stream, and works in that of its thread, come after what that one has, and before what follows:
 * called before and after it. */
void remote_streams_join(struct remote_worker *worker, const struct remote_head *head);
void remote_streams_part(struct remote_worker *worker, const struct remote_head *head);

/* driver.c */

/* Loads the driver, through which library soever its names lead. False, and why, where it cannot serve. */
bool remote_driver_load(struct remote_cuda_driver *cuda, struct remote_nvml_driver *nvml,
                        char why[REMOTE_WHY_BYTES]);

#endif
