/* A client that rewrites its records while the worker reads them: what the decoders judge is what they use, so each record
 * is answered, refused, or ends the link. FRAMES=n says how many records the worker takes, SEED=n draws others. */
#define _GNU_SOURCE /* mremap */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "remote/test/exercise.h"
#include "remote/test/seeds.h"
#include "remote/test/sides.h"
#include "test/check.h"

#define BATCH 64u

static struct remote_link *client, *worker;
/* The commands' bytes in another mapping, as if another process wrote them: the client itself does not know of it. */
static unsigned char *ring;
static unsigned long outcomes[REMOTE_BY_HAND + 1], ends, rewrites;

/* Where the last records lie in the ring; the next one to be rewritten is drawn from these. */
static struct {
    uint64_t at, size;
} last[BATCH];
static bool over;

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Decodes from memory that ends where the record does, so that a sanitizer sees a byte too far. */
static enum remote_outcome decode(const unsigned char *record, size_t size) {
    unsigned char *exact = malloc(size);
    struct remote_head head;

    CHECK(exact);
    memcpy(exact, record, size);
    memcpy(&head, exact, sizeof head);
    CHECK_EQUAL(head.size, size);
    enum remote_outcome outcome = remote_decode(&loopback, exact, size);
    free(exact);
    return outcome;
}

static void *serve(void *unused) {
    static unsigned char record[REMOTE_RECORD_BYTES];
    struct remote_answer answer;
    size_t size;

    while (remote_link_take(worker, record, &size, -1) == REMOTE_TAKEN) {
        enum remote_outcome outcome = decode(record, size);
        outcomes[outcome]++;
        if (outcome == REMOTE_ANSWERED) {
            memcpy(&answer, loopback.answer, sizeof answer);
            CHECK(remote_link_put(worker, loopback.answer, answer.size, NULL, 0) ||
                  remote_link_ended(worker));
            remote_link_flush(worker);
        }
        if (outcomes[outcome] % 256 == 0) {
            loopback_forget();
        }
    }
    return unused;
}

/* Words of records that were just put, rarely the first, as that one is the size and mostly ends the link. */
static void *rewrite(void *draw) {
    uint64_t state = *(uint64_t *)draw;

    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
        uint64_t drawn = next(&state);
        uint64_t at = __atomic_load_n(&last[drawn % BATCH].at, __ATOMIC_RELAXED);
        uint64_t size = __atomic_load_n(&last[drawn % BATCH].size, __ATOMIC_RELAXED);
        uint64_t offset = 4 * (drawn >> 8) % (size + 4);
        if (offset == 0 && (drawn >> 40) % 256) {
            continue;
        }
        uint32_t value = (uint32_t)seeds_number(next(&state));
        at = (at + offset) & (client->out.size - 1);
        __atomic_store_n((uint32_t *)(void *)(ring + at), value, __ATOMIC_RELAXED);
        rewrites++;
    }
    return NULL;
}

static void put(const struct seed *seed, uint64_t which) {
    uint64_t at = client->out.at;

    if (!remote_link_put(client, seed->bytes, seed->size, NULL, 0)) {
        return;
    }
    __atomic_store_n(&last[which % BATCH].at, at, __ATOMIC_RELAXED);
    __atomic_store_n(&last[which % BATCH].size, seed->size, __ATOMIC_RELAXED);
}

static unsigned long served(void) {
    unsigned long count = 0;

    for (size_t i = 0; i <= REMOTE_BY_HAND; i++) {
        count += outcomes[i];
    }
    return count;
}

/* One link, until it has ended or so many records have been put. */
static void run(uint64_t *state, unsigned long most) {
    static unsigned char answer[REMOTE_RECORD_BYTES];
    uint64_t draw = next(state);
    pthread_t server, rewriter;
    size_t size;

    sides_both(REMOTE_LINK_RINGS, &client, &worker);
    ring = mremap(client->out.bytes, 0, client->out.size, MREMAP_MAYMOVE);
    CHECK(ring != MAP_FAILED);
    memset(last, 0, sizeof last);
    over = false;
    CHECK(pthread_create(&server, NULL, serve, NULL) == 0);
    CHECK(pthread_create(&rewriter, NULL, rewrite, &draw) == 0);
    for (uint64_t i = 0; i < most && !remote_link_ended(client); i++) {
        put(&seeds[next(state) % seeds_count], i);
        if (i % BATCH == BATCH - 1) {
            remote_link_flush(client);
            while (remote_link_take(client, answer, &size, 0) == REMOTE_TAKEN) {
            }
        }
    }
    ends += remote_link_ended(client);
    __atomic_store_n(&over, true, __ATOMIC_RELEASE);
    CHECK(pthread_join(rewriter, NULL) == 0);
    remote_link_end(client);
    CHECK(pthread_join(server, NULL) == 0);
    munmap(ring, client->out.size);
    remote_link_free(client);
    remote_link_free(worker);
}

int main(void) {
    const char *frames = getenv("FRAMES"), *seed = getenv("SEED");
    unsigned long most = frames ? strtoul(frames, NULL, 10) : 100000;
    uint64_t state = seed ? strtoull(seed, NULL, 10) : 1;
    size_t before = sides_descriptors();

    CHECK(state);
    loopback_start(&cuda_mock, &nvml_mock);
    seeds_read();
    while (served() < most) {
        run(&state, most);
    }
    printf("%lu answered, %lu later, %lu garbled, %lu by hand, %lu links ended, %lu rewrites\n",
           outcomes[REMOTE_ANSWERED], outcomes[REMOTE_LATER], outcomes[REMOTE_GARBLED],
           outcomes[REMOTE_BY_HAND], ends, rewrites);
    CHECK(outcomes[REMOTE_ANSWERED] && outcomes[REMOTE_GARBLED] && ends);
    CHECK_EQUAL(sides_descriptors(), before);
    return 0;
}
