/* What the worker's files about copies share: copies of one row or with a shape, the area and regions they go through,
 * and the events that tell when they are done. */
#ifndef DIVVY_REMOTE_COPIES_H
#define DIVVY_REMOTE_COPIES_H

#include "remote/places.h"
#include "remote/worker/session.h"

/* One side of a copy, judged. */
struct remote_end {
    uint64_t place; /* enum remote_place */
    CUdeviceptr device;
    CUarray array;
    size_t offset;       /* in a row of the array, or in the area */
    unsigned char *host; /* memory that both sides see, or NULL */
    uint64_t room;       /* bytes from `host` on */
};

/* An event of ours, which ends with its context. */
struct remote_event {
    CUevent event; /* NULL for none */
    uint64_t context;
    CUdevice device;
};

struct remote_copy {
    uint16_t call;
    uint16_t manner;
    uint32_t block; /* of the area, from which or to which it goes; REMOTE_MOST_BLOCKS for none */
    uint32_t bytes; /* of the area, that are answered */
    bool issued;
    CUstream stream;
    struct remote_event event;
    CUDA_MEMCPY3D_PEER shape; /* of a row too: its offset in an array, and its width */
};

/* copies_give.c */

/* Reads the place of a side. What no client of ours would say garbles the record. */
void remote_end_read(struct remote_decoder *decoder, unsigned word, struct remote_end *end);
static inline bool remote_end_is_host(const struct remote_end *end) {
    return end->place != REMOTE_PLACE_DEVICE && end->place != REMOTE_PLACE_ARRAY;
}
/* Judges a copy, gives it to the driver and answers it, now or later. An extent is how many bytes it covers of a side
 * that is memory of the host. */
enum remote_outcome remote_copy_give(struct remote_decoder *decoder, struct remote_copy *copy,
                                     const struct remote_end *to, uint64_t to_extent,
                                     const struct remote_end *from, uint64_t from_extent);

/* copies_issue.c */

/* Writes where both sides are into the description that the driver reads. */
void remote_copy_ends(CUDA_MEMCPY3D_PEER *shape, const struct remote_end *to,
                      const struct remote_end *from);
/* Calls the driver. */
CUresult remote_copy_issue(const struct remote_cuda_driver *cuda, const struct remote_copy *copy);
/* What the driver says to a call of this thread that blocks, which none of ours is: captures of streams may forbid it. */
CUresult remote_copy_may_block(const struct remote_decoder *decoder);

/* copies_done.c: the executor calls these, if nothing else is said. */

/* An event of the record's context, which is current; none if the driver makes none. */
struct remote_event remote_event_take(struct remote_worker *worker, uint64_t context);
/* Keeps it, if there is one, for another time. Any thread may call it. */
void remote_event_give(struct remote_worker *worker, const struct remote_event *event);
/* Whether its context is there still, with which it ends. */
bool remote_event_lives(struct remote_worker *worker, const struct remote_event *event);
/* Whether it is of the device's primary context. */
bool remote_event_is_primary(const struct remote_event *event, CUdevice device);
/* Forgets the events of a device's primary context if that has ended: it is numbered as before when it is made anew. */
bool remote_events_forget_device(struct remote_worker *worker, CUdevice device);

/* copies_land.c */

/* Notes a posted copy to the area, which was given to the driver with this result, and whose bytes the client gets by
 * themselves. False if it has more of them than it may. */
bool remote_landing_add(struct remote_worker *worker, const struct remote_copy *copy,
                        CUresult result);
/* Sends the bytes of those that are done. What an answer tells of is done before it. Any thread may call it, but none that the
 * driver calls. */
void remote_landings_settle(struct remote_worker *worker);
/* Forgets the events behind copies of a device's primary context, which has ended. */
void remote_landings_forget_device(CUdevice device);

/* chunks.c */

/* Notes that a chunk is in use until the copy is done that was given last to the stream of the context, which is current; or
 * that no copy uses it. */
void remote_chunk_busy(struct remote_worker *worker, uint32_t block, uint32_t bytes,
                       CUstream stream, uint64_t context);
void remote_chunk_unused(uint32_t block);
/* Has an event stand behind all such copies: before captures begin, in which none may be recorded. And before the stream
 * ends. */
void remote_chunks_record(struct remote_worker *worker);
void remote_chunks_stream_ends(struct remote_worker *worker, CUstream stream);
/* Forgets the events behind copies of a device's primary context, which has ended. */
void remote_chunks_forget_device(CUdevice device);
/* The chunks that are no more in use: numbers of their first blocks. Returns how many. */
size_t remote_chunks_freed(struct remote_worker *worker, uint32_t blocks[REMOTE_MOST_BLOCKS]);

/* regions.c */

/* The area and its size; NULL before the client has opened it. */
unsigned char *remote_area(size_t *size);
/* Whether the driver knows the area, so that copies from and to it wait for nothing. It forgets it when the context ends
 * in which it was told, and is told again. */
bool remote_area_pin(const struct remote_cuda_driver *cuda);

#endif
