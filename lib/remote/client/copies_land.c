/* Copies to host memory that are posted, where both sides share no memory. The worker sends their bytes before any answer
 * that it gives when they are done: so who has learned that a copy is done, by whatever call, finds them. Until then each has
 * a chunk of the area, of which they may have a part, and is waited for if there is none.
 *
 * Memory that the driver does not know is not among it: the driver too returns from such a copy when it is done. */
#include "remote/client/host.h"
#include "remote/client/inside.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define LONGEST_PAUSE 500000 /* nanoseconds */

struct landing {
    uint64_t number;   /* in the order in which they were posted; 0 for a free place */
    unsigned char *to; /* NULL where the memory has ended */
    uint64_t extent;
    size_t width, height, depth, pitch, slice;
    uint32_t block;
};

/* Lock order: after that of wait.c, before that of the area. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct landing list[REMOTE_MOST_LANDINGS];
static uint32_t count, blocks; /* of all; the first is read without the lock */
static uint64_t last;
static bool stopped;

static bool is_any(void) {
    return __atomic_load_n(&count, __ATOMIC_ACQUIRE) != 0;
}

static uint64_t bytes_of(const struct landing *landing) {
    return (uint64_t)landing->width * landing->height * landing->depth;
}

static uint32_t blocks_of(const struct landing *landing) {
    return (uint32_t)((bytes_of(landing) + REMOTE_BLOCK_BYTES - 1) / REMOTE_BLOCK_BYTES);
}

/* Called with the lock. */
static void leave(struct landing *landing) {
    blocks -= blocks_of(landing);
    landing->number = 0;
    __atomic_store_n(&count, count - 1, __ATOMIC_RELEASE);
    remote_chunk_lands(false);
}

/* Notes it before it is sent, so that its bytes cannot come sooner. False if there is no place. */
static bool note(const struct landing *landing) {
    struct landing *free = NULL;

    pthread_mutex_lock(&lock);
    if (!stopped && count < REMOTE_MOST_LANDINGS &&
        blocks + blocks_of(landing) <= REMOTE_MOST_LANDING_BLOCKS) {
        for (free = list; free->number; free++) {
        }
        *free = *landing;
        free->number = ++last;
        blocks += blocks_of(landing);
        __atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
        remote_chunk_lands(true);
    }
    pthread_mutex_unlock(&lock);
    return free != NULL;
}

static bool is_pinned(const struct remote_copying *copy) {
    struct remote_host host;

    return remote_host_find(copy->to.host, &host) &&
           copy->extent <= host.size - (uint64_t)(copy->to.host - host.at);
}

bool remote_landing_note(const struct remote_copying *copy, uint64_t *chunk) {
    const CUDA_MEMCPY3D_PEER *s = &copy->shape;
    struct landing landing = {.to = copy->to.host,
                              .extent = copy->extent,
                              .width = s->WidthInBytes,
                              .height = s->Height,
                              .depth = s->Depth,
                              .pitch = copy->pitch,
                              .slice = copy->slice};

    if (copy->waits || !copy->from.known || remote_area_seen() || remote_area_waits() ||
        remote_strict() || !is_pinned(copy) ||
        !remote_chunk_take(bytes_of(&landing), false, chunk)) {
        return false;
    }
    landing.block = (uint32_t)(*chunk / REMOTE_BLOCK_BYTES);
    if (!note(&landing)) {
        remote_chunk_give(*chunk);
        return false;
    }
    return true;
}

static void move(const struct landing *landing, const unsigned char *from) {
    for (size_t z = 0; z < landing->depth; z++) {
        for (size_t y = 0; y < landing->height; y++) {
            memcpy(landing->to + z * landing->slice + y * landing->pitch, from, landing->width);
            from += landing->width;
        }
    }
}

/* Called with the lock. */
static struct landing *find(uint64_t block) {
    for (struct landing *landing = list; landing < list + REMOTE_MOST_LANDINGS; landing++) {
        if (landing->number && landing->block == block) {
            return landing;
        }
    }
    return NULL;
}

/* The record is posted also if the thread's context has ended meanwhile: it is never answered. */
CUresult remote_landing_post(struct remote_call *call, uint64_t chunk) {
    call->head.posted = 1;
    call->pieces[0] = (struct remote_piece){call->words, 8u * call->word_count};
    if (!call->fault && !remote_send(&call->head, call->pieces, call->piece_count)) {
        call->fault = CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    if (call->fault) {
        pthread_mutex_lock(&lock);
        struct landing *landing = find(chunk / REMOTE_BLOCK_BYTES);
        if (landing) { /* a worker that lies may have had it end */
            leave(landing);
        }
        pthread_mutex_unlock(&lock);
        if (landing) {
            remote_chunk_give(chunk);
        }
    }
    return (CUresult)call->fault;
}

const char *remote_landed(const struct remote_answer *head, const unsigned char *body) {
    size_t size = head->size - sizeof *head;
    uint64_t block = 0;

    if (size < sizeof block) {
        return "the worker sent bytes of no copy";
    }
    memcpy(&block, body, sizeof block);
    pthread_mutex_lock(&lock);
    struct landing *landing = find(block);
    bool sound =
        landing && size - sizeof block == (head->result ? 0 : remote_padded(bytes_of(landing)));
    if (sound) {
        if (landing->to && !head->result) {
            move(landing, body + sizeof block);
        }
        leave(landing);
    }
    pthread_mutex_unlock(&lock);
    if (!sound) {
        return "the worker sent bytes of no copy";
    }
    remote_chunk_give(block * REMOTE_BLOCK_BYTES);
    return NULL;
}

static bool is_within(const struct landing *landing, const unsigned char *at, uint64_t size) {
    return landing->number && landing->to && landing->to < at + size &&
           at < landing->to + landing->extent;
}

void remote_landings_drop(const unsigned char *at, uint64_t size) {
    pthread_mutex_lock(&lock);
    for (struct landing *landing = list; landing < list + REMOTE_MOST_LANDINGS; landing++) {
        if (is_within(landing, at, size)) {
            landing->to = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* Whether one is due that was posted so early. */
static bool is_due(uint64_t number) {
    bool due = false;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < REMOTE_MOST_LANDINGS; i++) {
        due |= list[i].number && list[i].number <= number;
    }
    pthread_mutex_unlock(&lock);
    return due;
}

static void wait_until(uint64_t number) {
    long pause = 2000;
    bool any;

    while (is_due(number) && remote_chunks_ask(&any) && is_due(number)) {
        nanosleep(&(struct timespec){0, pause}, NULL);
        pause = pause < LONGEST_PAUSE ? pause * 2 : pause;
    }
}

void remote_landings_wait(void) {
    if (is_any()) {
        pthread_mutex_lock(&lock);
        uint64_t number = last;
        pthread_mutex_unlock(&lock);
        wait_until(number);
    }
}

void remote_landings_wait_for(const unsigned char *at, uint64_t size) {
    uint64_t number = 0;

    if (!is_any()) {
        return;
    }
    pthread_mutex_lock(&lock);
    for (const struct landing *landing = list; landing < list + REMOTE_MOST_LANDINGS; landing++) {
        if (is_within(landing, at, size) && landing->number > number) {
            number = landing->number;
        }
    }
    pthread_mutex_unlock(&lock);
    wait_until(number);
}

void remote_landings_stop(void) {
    pthread_mutex_lock(&lock);
    stopped = true;
    uint64_t number = last;
    pthread_mutex_unlock(&lock);
    wait_until(number);
}
