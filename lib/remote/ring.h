/* A ring of bytes in memory that two processes share: one puts frames, the other takes them. Neither believes what the
 * other wrote there: an index is read once and held against the bounds, a frame's size is read once, and a frame is copied
 * before anybody looks at it. The indices count bytes since the beginning and are never reduced. */
#ifndef DIVVY_REMOTE_RING_H
#define DIVVY_REMOTE_RING_H

#include "remote/record.h"

/* Whether a frame may have this size. Records and answers have heads of the same size. */
static inline bool remote_frame_size(uint64_t size) {
    return size >= sizeof(struct remote_head) && size <= REMOTE_RECORD_BYTES && size % 8 == 0;
}

/* What both sides write. Each word is on cache lines of its own, so that neither slows down the other needlessly. */
struct remote_ring_words {
    _Alignas(128) uint64_t put;    /* how far frames are whole; only the putter writes it */
    _Alignas(128) uint64_t taken;  /* how far they have been taken; only the taker writes it */
    _Alignas(128) uint32_t sleeps; /* whether the taker is to be woken by the next flush */
    _Alignas(
        128) uint64_t wanted; /* the putter is to be woken when so much is taken; 0: it is awake */
};

/* One side's view of a ring. */
struct remote_ring {
    struct remote_ring_words *words;
    unsigned char *bytes;
    uint64_t size; /* a power of two, at least REMOTE_RECORD_BYTES */
    uint64_t at;   /* this side's own index, which the other cannot change */
    uint64_t seen; /* the other's index when it was last read */
    int wake;      /* a socket: a byte from it wakes this side, a byte into it the other */
    unsigned unspun, unyielded; /* how many waits go on without that, see link_rings.c */
};

enum remote_ring_state { REMOTE_RING_READY, REMOTE_RING_NOT_YET, REMOTE_RING_WRONG };

/* The putter's side. */

/* Whether there is room for so many bytes. */
enum remote_ring_state remote_ring_room(struct remote_ring *ring, size_t size);
/* Writes a frame, for which there is room. A taker that is awake sees it. */
void remote_ring_put(struct remote_ring *ring, const void *head, size_t head_size,
                     const struct remote_piece *pieces, size_t count);
/* After a put: whether the taker sleeps, and has to be woken by the caller. */
bool remote_ring_flush(struct remote_ring *ring);

/* The taker's side. */

enum remote_ring_state remote_ring_filled(struct remote_ring *ring);
/* Copies the next frame to `to`, which has room for REMOTE_RECORD_BYTES. */
enum remote_ring_state remote_ring_take(struct remote_ring *ring, void *to, size_t *size);
/* After a take: whether the putter waits for the room that there is now, and has to be woken by the caller. */
bool remote_ring_freed(struct remote_ring *ring);

/* Either side, before and after it sleeps; `room` is 0 for the taker, otherwise what the putter needs. Who has said so
 * looks once more before it sleeps: then it sees what the other did, or the other sees that it sleeps. */
void remote_ring_will_sleep(struct remote_ring *ring, size_t room);
void remote_ring_awake(struct remote_ring *ring, size_t room);

#endif
