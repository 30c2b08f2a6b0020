/* Bytes beside the stream: they come in several records, and wait for the one that names them. */
#include "remote/worker/bulk.h"

#include "remote/places.h"

#include <stdlib.h>
#include <string.h>

/* A client sends what a record names shortly before it, on each of its threads. */
#define MOST 64u

static struct bulk {
    uint64_t number; /* 0 for none */
    uint64_t size, filled;
    uint64_t born;
    bool asked;     /* it is freed when the next begins */
    unsigned users; /* calls of the driver on other threads */
    unsigned char *bytes;
} list[MOST];
static uint64_t all, births;

static void end(struct bulk *bulk) {
    all -= bulk->size;
    free(bulk->bytes);
    *bulk = (struct bulk){0};
}

static struct bulk *find(uint64_t number) {
    for (size_t i = 0; number && i < MOST; i++) {
        if (list[i].number == number) {
            return &list[i];
        }
    }
    return NULL;
}

/* Bytes that no record has named for long never will be: the call for which they were sent failed in the client. */
static struct bulk *begin(uint64_t number, uint64_t size) {
    struct bulk *bulk = NULL;

    for (size_t i = 0; i < MOST; i++) {
        if (__atomic_load_n(&list[i].users, __ATOMIC_ACQUIRE)) {
            continue;
        }
        if (list[i].asked) {
            end(&list[i]);
        }
        if (!bulk || (bulk->number && (!list[i].number || list[i].born < bulk->born))) {
            bulk = &list[i];
        }
    }
    if (!bulk) {
        return NULL;
    }
    if (bulk->number) {
        end(bulk);
    }
    if (size > REMOTE_MOST_BULK - all || !(bulk->bytes = malloc(size ? size : 1))) {
        return NULL;
    }
    all += size;
    bulk->number = number;
    bulk->size = size;
    bulk->born = ++births;
    return bulk;
}

bool remote_bulk_put(uint64_t number, uint64_t size, uint64_t from, const void *bytes,
                     uint64_t count) {
    struct bulk *bulk = find(number);

    if (!bulk && number && from == 0) {
        bulk = begin(number, size);
    }
    if (!bulk || bulk->size != size || bulk->filled != from || count > size - from || bulk->asked) {
        return false;
    }
    memcpy(bulk->bytes + from, bytes, count);
    bulk->filled += count;
    return true;
}

const void *remote_bulk_get(uint64_t number, uint64_t size) {
    struct bulk *bulk = find(number);

    if (!bulk || bulk->size != size || bulk->filled != size) {
        return NULL;
    }
    bulk->asked = true;
    return bulk->bytes;
}

unsigned *remote_bulk_users(const void *bytes) {
    for (size_t i = 0; i < MOST; i++) {
        if (bytes && list[i].bytes == bytes) {
            return &list[i].users;
        }
    }
    return NULL;
}

enum remote_outcome remote_hand_bulk(struct remote_decoder *decoder) {
    if (!remote_words(decoder, REMOTE_BULK_WORDS)) {
        return REMOTE_GARBLED;
    }
    const uint64_t *words = decoder->words;
    uint64_t left = words[1] >= words[2] ? words[1] - words[2] : 0;
    uint64_t count = left < REMOTE_BULK_BYTES ? left : REMOTE_BULK_BYTES;
    const void *bytes = remote_in(decoder, 0, count, 1);
    if (!bytes || !remote_taken(decoder, true)) {
        return REMOTE_GARBLED;
    }
    bool there = words[1] <= REMOTE_MOST_BULK && words[2] <= words[1] &&
                 remote_bulk_put(words[0], words[1], words[2], bytes, count);
    /* Without room the record that names them finds nothing. */
    remote_answer(decoder, there ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
    return remote_finish(decoder);
}
