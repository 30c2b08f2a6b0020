#include "remote/ring.h"

#include <string.h>

/* How far the other side is. Its word is read once; it may have written anything there. */
static bool read_index(const uint64_t *word, uint64_t *index) {
    *index = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    return *index % 8 == 0;
}

enum remote_ring_state remote_ring_room(struct remote_ring *ring, size_t size) {
    if (ring->size - (ring->at - ring->seen) >= size) {
        return REMOTE_RING_READY;
    }
    uint64_t taken;
    /* No more than there is, and no less than before. */
    if (!read_index(&ring->words->taken, &taken) || ring->at - taken > ring->at - ring->seen) {
        return REMOTE_RING_WRONG;
    }
    ring->seen = taken;
    return ring->size - (ring->at - taken) >= size ? REMOTE_RING_READY : REMOTE_RING_NOT_YET;
}

static void copy_in(const struct remote_ring *ring, uint64_t at, const void *from, size_t size) {
    size_t offset = (size_t)(at & (ring->size - 1)), first = (size_t)ring->size - offset;

    if (first > size) {
        first = size;
    }
    memcpy(ring->bytes + offset, from, first);
    if (size > first) {
        memcpy(ring->bytes, (const unsigned char *)from + first, size - first);
    }
}

static void copy_out(const struct remote_ring *ring, uint64_t at, void *to, size_t size) {
    size_t offset = (size_t)(at & (ring->size - 1)), first = (size_t)ring->size - offset;

    if (first > size) {
        first = size;
    }
    memcpy(to, ring->bytes + offset, first);
    if (size > first) {
        memcpy((unsigned char *)to + first, ring->bytes, size - first);
    }
    /* What is judged later is the copy, never the ring again. */
    __asm__ volatile("" ::: "memory");
}

void remote_ring_put(struct remote_ring *ring, const void *head, size_t head_size,
                     const struct remote_piece *pieces, size_t count) {
    static const unsigned char zeros[8];
    uint64_t at = ring->at;

    copy_in(ring, at, head, head_size);
    at += head_size;
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].size == 0) {
            continue;
        }
        copy_in(ring, at, pieces[i].at, pieces[i].size);
        at += pieces[i].size;
        copy_in(ring, at, zeros, (size_t)(-at & 7u));
        at += -at & 7u;
    }
    ring->at = at;
    __atomic_store_n(&ring->words->put, at, __ATOMIC_RELEASE);
}

/* No wake-up is lost, because both sides exchange the same word, and one of the two exchanges comes second:
 * - the taker's, to 1: it reads what the putter's wrote, so the frames put before are visible to the look that follows;
 * - the putter's, to 0: it reads 1, and the caller wakes the taker. The byte waits in a socket, so it may come before the
 *   taker sleeps.
 * The putter waits for room in the same manner by the word `wanted`. */
bool remote_ring_flush(struct remote_ring *ring) {
    return __atomic_exchange_n(&ring->words->sleeps, 0, __ATOMIC_ACQ_REL) != 0;
}

enum remote_ring_state remote_ring_filled(struct remote_ring *ring) {
    uint64_t put;

    if (ring->seen != ring->at) {
        return REMOTE_RING_READY;
    }
    if (!read_index(&ring->words->put, &put) || put - ring->at > ring->size) {
        return REMOTE_RING_WRONG;
    }
    ring->seen = put;
    return put == ring->at ? REMOTE_RING_NOT_YET : REMOTE_RING_READY;
}

enum remote_ring_state remote_ring_take(struct remote_ring *ring, void *to, size_t *size) {
    enum remote_ring_state state = remote_ring_filled(ring);

    if (state != REMOTE_RING_READY) {
        return state;
    }
    /* The putter publishes whole frames, so the size is there, and no more may be said than was put. */
    uint32_t said = __atomic_load_n(
        (const uint32_t *)(const void *)(ring->bytes + (ring->at & (ring->size - 1))),
        __ATOMIC_RELAXED);
    if (!remote_frame_size(said) || said > ring->seen - ring->at) {
        return REMOTE_RING_WRONG;
    }
    copy_out(ring, ring->at, to, said);
    /* The size that was judged; meanwhile the ring may say another. */
    memcpy(to, &said, sizeof said);
    *size = said;
    ring->at += said;
    __atomic_store_n(&ring->words->taken, ring->at, __ATOMIC_RELEASE);
    return REMOTE_RING_READY;
}

bool remote_ring_freed(struct remote_ring *ring) {
    /* An exchange that changes nothing; see remote_ring_flush. */
    uint64_t wanted = __atomic_fetch_add(&ring->words->wanted, 0, __ATOMIC_ACQ_REL);

    return wanted && ring->at >= wanted &&
           __atomic_compare_exchange_n(&ring->words->wanted, &wanted, 0, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

void remote_ring_will_sleep(struct remote_ring *ring, size_t room) {
    if (room == 0) {
        __atomic_exchange_n(&ring->words->sleeps, 1, __ATOMIC_ACQ_REL);
        return;
    }
    /* There is less room than this, so the ring holds something, and `wanted` is above what was taken, never 0. Half
     * of the ring is waited for, as otherwise each frame that is taken would wake the putter. */
    uint64_t most = room > ring->size / 2 ? ring->size - room : ring->size / 2;
    __atomic_exchange_n(&ring->words->wanted, ring->at - most, __ATOMIC_ACQ_REL);
}

void remote_ring_awake(struct remote_ring *ring, size_t room) {
    if (room == 0) {
        __atomic_exchange_n(&ring->words->sleeps, 0, __ATOMIC_ACQ_REL);
    } else {
        __atomic_exchange_n(&ring->words->wanted, 0, __ATOMIC_ACQ_REL);
    }
}
