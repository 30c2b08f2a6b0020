/* The area, through which the bytes of copies go in chunks. It is memory of both sides, or where they share
 * none memory of the worker which records fill. A chunk whose copy was posted is free again when the worker says so; it is
 * asked when there is no other. Whoever waits for the answer of a copy knows by that. */
#include "remote/client/copies.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define NONE UINT32_MAX
#define LONGEST_PAUSE 500000 /* nanoseconds between two questions which chunks are free */

/* Lock order: none of the stream's or of the table of numbers is taken below it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;
static struct {
    bool open, pinned;
    unsigned char *seen;
    uint32_t blocks, sent;              /* in all; chunks that the worker has to tell of */
    uint32_t landing;                   /* chunks that are given back when an answer comes */
    uint32_t lowest;                    /* no block below it is free */
    bool taken[REMOTE_MOST_BLOCKS];     /* by block */
    uint8_t length[REMOTE_MOST_BLOCKS]; /* of the chunk that begins there */
    bool posted[REMOTE_MOST_BLOCKS];    /* the chunk that begins there is with the worker */
} area;

static void begin_call(struct remote_call *call, enum remote_region_call what, uint64_t a,
                       uint64_t b) {
    remote_begin(call, (enum remote_number)REMOTE_REGION, REMOTE_REGION_WORDS);
    call->words[0] = what;
    call->words[1] = a;
    call->words[2] = b;
}

CUresult remote_area_begin(void) {
    struct remote_area_facts facts = {0};
    struct remote_call call;
    struct remote_reply reply;
    size_t size = 0;

    if (__atomic_load_n(&area.open, __ATOMIC_ACQUIRE)) {
        return CUDA_SUCCESS;
    }
    begin_call(&call, REMOTE_AREA_OPEN, 0, 0);
    remote_given(&call, 0, &facts);
    remote_ask(&call, &reply);
    remote_get(&call, &reply, 0, &facts, sizeof facts, false);
    CUresult result = (CUresult)remote_end(&call, &reply);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct remote_link *link = remote_session_link();
    unsigned char *seen = link ? remote_link_area(link, &size) : NULL;
    pthread_mutex_lock(&lock);
    if (!area.open) {
        uint64_t blocks = (seen && facts.size > size ? size : facts.size) / REMOTE_BLOCK_BYTES;
        area.blocks = blocks < REMOTE_MOST_BLOCKS ? (uint32_t)blocks : REMOTE_MOST_BLOCKS;
        area.pinned = facts.pinned != 0;
        area.seen = seen;
        __atomic_store_n(&area.open, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return area.blocks >= REMOTE_CHUNK_BLOCKS ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool remote_area_waits(void) {
    return !area.pinned;
}

unsigned char *remote_area_seen(void) {
    return area.seen;
}

/* The first of so many free blocks in a row. */
static uint32_t find(uint32_t count) {
    uint32_t run = 0;

    for (uint32_t i = area.lowest; i < area.blocks; i++) {
        run = area.taken[i] ? 0 : run + 1;
        if (run == count) {
            return i + 1 - count;
        }
    }
    return NONE;
}

static uint32_t take(uint32_t count) {
    uint32_t first = find(count);

    if (first == NONE) {
        return NONE;
    }
    memset(area.taken + first, true, count);
    area.length[first] = (uint8_t)count;
    if (first == area.lowest) {
        area.lowest = first + count;
    }
    return first;
}

static void give(uint32_t first) {
    memset(area.taken + first, false, area.length[first]);
    if (first < area.lowest) {
        area.lowest = first;
    }
}

static bool is_chunk(uint32_t first) {
    return first < area.blocks && area.posted[first];
}

/* The worker may say what it likes: only chunks that it has to tell of are believed to be free. */
bool remote_chunks_ask(bool *any) {
    uint32_t told[REMOTE_MOST_BLOCKS];
    struct remote_call call;
    struct remote_reply reply;

    memset(told, 0xff, sizeof told);
    begin_call(&call, REMOTE_AREA_FREED, 0, 0);
    remote_given(&call, 0, told);
    remote_ask(&call, &reply);
    remote_get_some(&call, &reply, 0, told, sizeof told, false);
    if (call.fault || reply.garbled || reply.head.result != 0) {
        return false;
    }
    /* What else an answer tells is not lost. */
    remote_late(call.head.call, 0, reply.head.late);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < REMOTE_MOST_BLOCKS && told[i] != NONE; i++) {
        if (is_chunk(told[i])) {
            area.posted[told[i]] = false;
            area.sent--;
            give(told[i]);
            *any = true;
        }
    }
    pthread_cond_broadcast(&given);
    pthread_mutex_unlock(&lock);
    return true;
}

/* Waits until some chunk is free that was not. Called with the lock. */
static bool await(long *pause) {
    bool any = false, lives = true;

    if (!area.sent && !area.landing) {
        pthread_cond_wait(&given, &lock);
        return remote_session_link() != NULL;
    }
    pthread_mutex_unlock(&lock);
    lives = remote_chunks_ask(&any);
    if (lives && !any) {
        nanosleep(&(struct timespec){0, *pause}, NULL);
        *pause = *pause < LONGEST_PAUSE ? *pause * 2 : *pause;
    }
    pthread_mutex_lock(&lock);
    return lives;
}

bool remote_chunk_take(size_t bytes, bool wait, uint64_t *offset) {
    uint32_t count = (uint32_t)((bytes + REMOTE_BLOCK_BYTES - 1) / REMOTE_BLOCK_BYTES);
    long pause = 2000;

    pthread_mutex_lock(&lock);
    uint32_t first = take(count ? count : 1);
    while (first == NONE && wait && await(&pause)) {
        first = take(count ? count : 1);
    }
    pthread_mutex_unlock(&lock);
    *offset = (uint64_t)first * REMOTE_BLOCK_BYTES;
    return first != NONE;
}

void remote_chunk_give(uint64_t offset) {
    pthread_mutex_lock(&lock);
    give((uint32_t)(offset / REMOTE_BLOCK_BYTES));
    pthread_cond_broadcast(&given);
    pthread_mutex_unlock(&lock);
}

void remote_chunk_sent(uint64_t offset) {
    pthread_mutex_lock(&lock);
    area.posted[offset / REMOTE_BLOCK_BYTES] = true;
    area.sent++;
    pthread_mutex_unlock(&lock);
}

void remote_chunk_lands(bool begins) {
    pthread_mutex_lock(&lock);
    area.landing += begins ? 1u : UINT32_MAX;
    pthread_mutex_unlock(&lock);
}

void remote_chunk_unsent(uint64_t offset) {
    uint32_t first = (uint32_t)(offset / REMOTE_BLOCK_BYTES);

    pthread_mutex_lock(&lock);
    if (is_chunk(first)) {
        area.posted[first] = false;
        area.sent--;
        give(first);
    }
    pthread_cond_broadcast(&given);
    pthread_mutex_unlock(&lock);
}

CUresult remote_post_piece(struct remote_call *call, const void *bytes, size_t size) {
    remote_given(call, 0, bytes);
    if (size) {
        call->pieces[call->piece_count++] = (struct remote_piece){bytes, size};
        call->head.size += (uint32_t)remote_padded(size);
    }
    return (CUresult)remote_post(call);
}

CUresult remote_chunk_write(uint64_t offset, const void *bytes, size_t size) {
    struct remote_call call;

    begin_call(&call, REMOTE_AREA_WRITE, offset, size);
    return remote_post_piece(&call, bytes, size);
}
