#include "remote/code.h"

#include "remote/sha256.h"
#include "remote/worker/bulk.h"
#include "remote/worker/hand.h"

#include <stdlib.h>
#include <string.h>

static struct kept {
    unsigned char *bytes; /* NULL for none */
    size_t size;
    uint64_t serial;
    uint64_t used;  /* when it was kept, asked for or named last */
    uint64_t asked; /* when a client heard its number, and has not named it yet; 0 for never */
    unsigned users; /* calls of the driver on other threads */
    bool digested;
    unsigned char digest[REMOTE_DIGEST_BYTES];
} list[REMOTE_MOST_CODES];
static size_t all;
static uint64_t now, serials;

static void end(struct kept *kept) {
    all -= kept->size;
    free(kept->bytes);
    *kept = (struct kept){0};
}

/* A client names code soon after it has heard the number. */
static bool is_awaited(const struct kept *kept) {
    return kept->asked && now - kept->asked < 2 * REMOTE_MOST_CODES;
}

static bool is_in_use(const struct kept *kept) {
    return __atomic_load_n(&kept->users, __ATOMIC_ACQUIRE) != 0;
}

/* A place for so much more, in which the code lay that was used least recently. NULL if a client may still name all. */
static struct kept *room(size_t size) {
    for (;;) {
        struct kept *oldest = NULL, *empty = NULL;

        for (size_t i = 0; i < REMOTE_MOST_CODES; i++) {
            if (!list[i].bytes) {
                empty = &list[i];
            } else if (!is_awaited(&list[i]) && !is_in_use(&list[i]) &&
                       (!oldest || list[i].used < oldest->used)) {
                oldest = &list[i];
            }
        }
        if (empty && all + size <= REMOTE_ALL_CODE) {
            return empty;
        }
        if (!oldest) {
            return NULL;
        }
        end(oldest);
    }
}

void remote_worker_code_keep(struct remote_worker *worker, const void *code, size_t size) {
    struct remote_link *link = remote_worker_link(worker);
    size_t shared;

    if (size < REMOTE_LEAST_CODE || size > REMOTE_MOST_CODE ||
        (link && remote_link_area(link, &shared))) {
        return;
    }
    now++;
    for (size_t i = 0; i < REMOTE_MOST_CODES; i++) {
        if (list[i].bytes && list[i].size == size && memcmp(list[i].bytes, code, size) == 0) {
            list[i].used = now;
            return;
        }
    }
    struct kept *kept = room(size);
    unsigned char *bytes = kept ? malloc(size) : NULL;
    if (bytes) {
        memcpy(bytes, code, size);
        *kept = (struct kept){.bytes = bytes, .size = size, .serial = ++serials, .used = now};
        all += size;
    }
}

const void *remote_worker_code(struct remote_worker *worker, uint64_t number, uint64_t size) {
    (void)worker;
    for (size_t i = 0; i < REMOTE_MOST_CODES; i++) {
        if (list[i].bytes && (list[i].serial | REMOTE_KEPT_CODE) == number &&
            list[i].size == size) {
            list[i].used = ++now;
            list[i].asked = 0;
            return list[i].bytes;
        }
    }
    return NULL;
}

unsigned *remote_code_users(const void *code) {
    for (size_t i = 0; i < REMOTE_MOST_CODES; i++) {
        if (code && list[i].bytes == code) {
            return &list[i].users;
        }
    }
    return NULL;
}

/* Words: size, and the digest in four. Only what has the size is looked at, and its digest computed once. */
enum remote_outcome remote_hand_code(struct remote_decoder *d) {
    uint64_t number = 0;

    if (!remote_words(d, REMOTE_CODE_WORDS)) {
        return REMOTE_GARBLED;
    }
    if (!remote_taken(d, true)) {
        return remote_not_called(d);
    }
    now++;
    for (size_t i = 0; i < REMOTE_MOST_CODES && !number; i++) {
        struct kept *kept = &list[i];

        if (!kept->bytes || kept->size != d->words[0]) {
            continue;
        }
        if (!kept->digested) {
            remote_sha256(kept->bytes, kept->size, kept->digest);
            kept->digested = true;
        }
        if (memcmp(kept->digest, &d->words[1], sizeof kept->digest) == 0) {
            number = kept->serial | REMOTE_KEPT_CODE;
            kept->used = kept->asked = now;
        }
    }
    remote_answer(d, 0);
    remote_give(d, 0, &number, sizeof number, false);
    return remote_finish(d);
}
