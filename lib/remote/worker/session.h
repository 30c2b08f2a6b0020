/* What the files of the worker share. One thread, the executor, takes records and calls the driver; other threads wait
 * for the GPU and answer. */
#ifndef DIVVY_REMOTE_SESSION_H
#define DIVVY_REMOTE_SESSION_H

#include "remote/generated/cuda_decode.h"
#include "remote/generated/decode.h"
#include "remote/generated/nvml_decode.h"
#include "remote/link.h"
#include "remote/worker.h"

/* hand.c: the decoder of a call that is decoded by hand, or of a call of our own; NULL if there is none. Each is written
 * like a generated one: words, pieces, remote_taken, the driver, the answer. hand.h has their names. */
remote_decode_one *remote_hand_decoder(uint16_t call);

/* wait.c: work for another thread than the executor, which may block there. `work` is called with the context of the
 * record current and answers by remote_worker_say; the decoder returns REMOTE_LATER. The argument is copied, no more than
 * REMOTE_LATER_BYTES. False if there is no thread: the caller answers CUDA_ERROR_OUT_OF_MEMORY. */
#define REMOTE_LATER_BYTES 256u
typedef void remote_work(struct remote_worker *worker, const struct remote_head *head,
                         void *argument);
bool remote_worker_later(struct remote_decoder *decoder, remote_work *work, const void *argument,
                         size_t size);

/* answer.c: any thread may call these. */
/* Answers the record with this head. */
void remote_worker_say(struct remote_worker *worker, const struct remote_head *record,
                       int32_t result, uint32_t given, const struct remote_piece *pieces,
                       size_t count);
/* Sends a frame by itself, to the client's remote_notice_register. */
void remote_worker_notify(struct remote_worker *worker, uint16_t call,
                          const struct remote_piece *pieces, size_t count);
/* Keeps the error of a call that was posted, for the next answer to its context. */
void remote_worker_late(struct remote_worker *worker, const struct remote_head *record,
                        int32_t result);

/* Sends the bytes of a posted copy, or that there are none, with the next answer. */
void remote_worker_land(struct remote_worker *worker, uint64_t block, int32_t result,
                        const void *bytes, size_t size);

/* Has this called before each answer, by whoever gives it. There is one who asks for it, copies_land.c. */
void remote_worker_before_answers(void (*before)(struct remote_worker *worker));

/* capture.c: on one executor, captures of all threads of the program are those of one thread. Whoever calls the driver for
 * a record gets the mode first under which the driver refuses what it would refuse to the program's thread. The executor
 * asks before it decodes a record: what it has to answer instead, or 0; and tells afterwards what became of it. */
int32_t remote_capture_before(struct remote_worker *worker, const void *record, size_t size);
void remote_capture_after(const struct remote_decoder *decoder);
/* The same for another thread that waits or copies for a record. */
void remote_capture_apply(struct remote_worker *worker, const struct remote_head *head);
/* The same for a question that is the worker's own. */
void remote_capture_relax(struct remote_worker *worker);
/* Whether any stream is captured. */
bool remote_capture_active(void);
/* Whether a thread of the program is refused meanwhile what is not safe then. */
bool remote_capture_forbids(uint32_t thread);

/* callback_wait.c: functions of the program that the driver's streams wait for. The executor says that the link has ended,
 * so that no stream waits any longer. */
void remote_callbacks_end(void);
/* Takes the next frame for the executor, as remote_link_take does, however long it takes. While the executor is inside the
 * driver, which may wait there for a function of the program, another thread takes frames and keeps them for it. */
enum remote_taken remote_frame_next(struct remote_worker *worker, void *to, size_t *size);

/* regions.c: where memory is that both sides see, and how many bytes there are from this offset on. Only the executor may
 * call it. False if the client has no such region, or it is not so long. */
bool remote_region_at(struct remote_worker *worker, uint64_t number, uint64_t offset, void **at,
                      uint64_t *room);

struct remote_link *remote_worker_link(struct remote_worker *worker);
const struct remote_cuda_driver *remote_worker_cuda(struct remote_worker *worker);
const struct remote_nvml_driver *remote_worker_nvml(struct remote_worker *worker);

#endif
