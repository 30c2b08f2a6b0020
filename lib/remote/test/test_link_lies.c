/* A side that does not keep to the protocol: each lie ends the link with a reason, or changes nothing, and nothing is left.
 * Both sides are in this process, and map the rings at two places, so what one writes by hand the other finds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote/generated/numbers/numbers.h"
#include "remote/test/sides.h"
#include "test/check.h"

static unsigned char taken[REMOTE_RECORD_BYTES];

static bool put_small(struct remote_link *link, uint64_t sequence) {
    struct remote_head head = {.size = sizeof head, .sequence = sequence};

    return remote_link_put(link, &head, sizeof head, NULL, 0);
}

/* The side that was lied to has ended it and says why; the other hears that. */
static void check_ended(struct remote_link *deceived, struct remote_link *liar) {
    enum remote_taken result;
    size_t size;

    CHECK(remote_link_ended(deceived) && remote_link_why(deceived));
    CHECK_EQUAL(remote_link_take(deceived, taken, &size, -1), REMOTE_ENDED);
    /* What was put before the end is still there. */
    while ((result = remote_link_take(liar, taken, &size, -1)) == REMOTE_TAKEN) {
    }
    CHECK_EQUAL(result, REMOTE_ENDED);
    CHECK(!put_small(deceived, 0) && !put_small(liar, 0));
    remote_link_free(liar);
    remote_link_free(deceived);
}

/* Either side: the index of who puts, and what the frame says of its size. */
static void check_put(bool worker_lies, uint64_t index, uint32_t said, enum remote_taken result) {
    struct remote_link *client, *worker;
    size_t size = 0;

    sides_both(REMOTE_LINK_RINGS, &client, &worker);
    struct remote_link *liar = worker_lies ? worker : client;
    struct remote_link *deceived = worker_lies ? client : worker;
    memcpy(liar->out.bytes, &said, sizeof said);
    __atomic_store_n(&liar->out.words->put, index, __ATOMIC_RELEASE);
    CHECK_EQUAL(remote_link_take(deceived, taken, &size, 0), result);
    if (result == REMOTE_ENDED) {
        check_ended(deceived, liar);
        return;
    }
    CHECK(result != REMOTE_TAKEN || size == said);
    remote_link_free(liar);
    remote_link_free(deceived);
}

static void check_puts(bool worker_lies) {
    uint64_t most = worker_lies ? REMOTE_ANSWERS_BYTES : REMOTE_COMMANDS_BYTES;

    check_put(worker_lies, 0, 32, REMOTE_NOTHING_YET);
    check_put(worker_lies, 32, 32, REMOTE_TAKEN);
    check_put(worker_lies, 40, 40, REMOTE_TAKEN);
    check_put(worker_lies, most, REMOTE_RECORD_BYTES, REMOTE_TAKEN);
    /* Indices beyond the ring, before it, and between words. */
    check_put(worker_lies, most + 8, 32, REMOTE_ENDED);
    check_put(worker_lies, UINT64_MAX - 7, 32, REMOTE_ENDED);
    check_put(worker_lies, UINT64_C(1) << 63, 32, REMOTE_ENDED);
    check_put(worker_lies, 33, 32, REMOTE_ENDED);
    check_put(worker_lies, 36, 32, REMOTE_ENDED);
    check_put(worker_lies, UINT64_MAX, 32, REMOTE_ENDED);
    /* Sizes. */
    check_put(worker_lies, 64, 0, REMOTE_ENDED);
    check_put(worker_lies, 64, 8, REMOTE_ENDED);
    check_put(worker_lies, 64, 24, REMOTE_ENDED);
    check_put(worker_lies, 64, 33, REMOTE_ENDED);
    check_put(worker_lies, 64, 36, REMOTE_ENDED);
    check_put(worker_lies, 64, 72, REMOTE_ENDED);
    check_put(worker_lies, 8, 32, REMOTE_ENDED);
    check_put(worker_lies, most, REMOTE_RECORD_BYTES + 8, REMOTE_ENDED);
    check_put(worker_lies, most, UINT32_MAX - 7, REMOTE_ENDED);
    check_put(worker_lies, most, UINT32_MAX, REMOTE_ENDED);
}

/* The index of who takes, which is only read when room seems to be short. */
static void check_taken(bool worker_lies, uint64_t index) {
    struct remote_link *client, *worker;

    sides_both(REMOTE_LINK_RINGS, &client, &worker);
    struct remote_link *liar = worker_lies ? worker : client;
    struct remote_link *deceived = worker_lies ? client : worker;
    __atomic_store_n(&liar->in.words->taken, index, __ATOMIC_RELEASE);
    for (uint64_t i = 0; put_small(deceived, i); i++) {
        CHECK(i <= deceived->out.size / sizeof(struct remote_head));
    }
    check_ended(deceived, liar);
}

/* An index that goes back behind what was put and taken already. */
static void check_back(void) {
    struct remote_link *client, *worker;
    size_t size;

    sides_both(REMOTE_LINK_RINGS, &client, &worker);
    for (uint64_t i = 0; i < 2; i++) {
        CHECK(put_small(client, i));
        CHECK_EQUAL(remote_link_take(worker, taken, &size, 0), REMOTE_TAKEN);
    }
    __atomic_store_n(&client->out.words->put, sizeof(struct remote_head), __ATOMIC_RELEASE);
    CHECK_EQUAL(remote_link_take(worker, taken, &size, 0), REMOTE_ENDED);
    check_ended(worker, client);
}

/* The ring is full of sizes, of which another thread changes the next ones all the time, between two that are right. What
 * was judged is what is copied, and how far the next frame lies. */
static struct remote_link *rewritten;
static bool enough;

static void *rewrite(void *unused) {
    uint64_t *words = (uint64_t *)(void *)rewritten->out.bytes;
    const uint64_t *taken_to = &rewritten->out.words->taken;

    sides_run_on(1);
    while (!__atomic_load_n(&enough, __ATOMIC_RELAXED)) {
        uint64_t first = __atomic_load_n(taken_to, __ATOMIC_RELAXED) / 8;
        for (uint64_t i = first; i < first + 10; i++) {
            uint64_t *word = &words[i % (rewritten->out.size / 8)];
            uint64_t now = __atomic_load_n(word, __ATOMIC_RELAXED);
            __atomic_store_n(word, now == 64 ? 72 : 64, __ATOMIC_RELAXED);
        }
    }
    return unused;
}

static void check_rewritten(void) {
    struct remote_link *worker;
    struct remote_head head;
    pthread_t thread;
    size_t size;
    unsigned changed = 0;
    cpu_set_t cores;

    sides_both(REMOTE_LINK_RINGS, &rewritten, &worker);
    for (size_t i = 0; i < rewritten->out.size / 8; i++) {
        ((uint64_t *)(void *)rewritten->out.bytes)[i] = 64;
    }
    CHECK(sched_getaffinity(0, sizeof cores, &cores) == 0);
    CHECK(pthread_create(&thread, NULL, rewrite, NULL) == 0);
    sides_run_on(0);
    for (unsigned i = 0; i < 1000000 || !changed; i++) {
        __atomic_store_n(&rewritten->out.words->put, worker->in.at + 128, __ATOMIC_RELEASE);
        worker->in.seen = worker->in.at; /* as if all before had been taken */
        uint64_t before = worker->in.at;
        CHECK_EQUAL(remote_link_take(worker, taken, &size, 0), REMOTE_TAKEN);
        memcpy(&head, taken, sizeof head);
        CHECK(size == 64 || size == 72);
        CHECK_EQUAL(head.size, size);
        CHECK_EQUAL(worker->in.at, before + size);
        changed += size == 72;
    }
    __atomic_store_n(&enough, true, __ATOMIC_RELAXED);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(sched_setaffinity(0, sizeof cores, &cores) == 0);
    remote_link_free(rewritten);
    remote_link_free(worker);
}

static void check_stream(const void *bytes, size_t count, bool closed) {
    struct remote_link *client, *worker;
    size_t size;

    sides_both(REMOTE_LINK_STREAM, &client, &worker);
    CHECK_EQUAL(send(client->socket, bytes, count, 0), count);
    if (closed) {
        shutdown(client->socket, SHUT_WR);
    }
    CHECK_EQUAL(remote_link_take(worker, taken, &size, closed ? -1 : 0), REMOTE_ENDED);
    CHECK(strcmp(remote_link_why(worker),
                 !closed ? "the program sent a frame that is none"
                         : "the program is gone in the middle of a frame") == 0);
    check_ended(worker, client);
}

static void check_streams(void) {
    const uint32_t sizes[] = {0, 8, 31, 33, 36, REMOTE_RECORD_BYTES + 8, UINT32_MAX};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        check_stream(&sizes[i], sizeof sizes[i], false);
    }
    struct remote_head half = {.size = 64};
    check_stream(&half, sizeof half, true);
    check_stream(&half, 3, true);
    /* A frame that does not come to its end is no frame, and no error before the other side is gone. */
    struct remote_link *client, *worker;
    size_t size;
    sides_both(REMOTE_LINK_STREAM, &client, &worker);
    for (unsigned i = 0; i < 2; i++) {
        CHECK_EQUAL(send(client->socket, &half, sizeof half, 0), sizeof half);
        CHECK_EQUAL(remote_link_take(worker, taken, &size, 1000),
                    i ? REMOTE_TAKEN : REMOTE_NOTHING_YET);
    }
    CHECK_EQUAL(size, 64);
    CHECK(!remote_link_give(client, 1, 0) && remote_link_receive(worker, 1) == -1);
    CHECK(!remote_link_area(client, &size) && size == 0);
    remote_link_free(client);
    remote_link_free(worker);
}

/* What this side would put itself. */
static void check_own(void) {
    struct remote_link *client, *worker;
    struct remote_head head = {.size = 40};
    /* Together they wrap around to what the head says. */
    const struct remote_piece pieces[] = {{&head, SIZE_MAX - 7}, {&head, 16}};

    for (unsigned i = 0; i < 2; i++) {
        sides_both(i ? REMOTE_LINK_STREAM : REMOTE_LINK_RINGS, &client, &worker);
        CHECK(!remote_link_put(client, &head, sizeof head, NULL, 0));
        check_ended(client, worker);
        sides_both(i ? REMOTE_LINK_STREAM : REMOTE_LINK_RINGS, &client, &worker);
        CHECK(!remote_link_put(client, &head, sizeof head, pieces, 2));
        check_ended(client, worker);
    }
}

int main(void) {
    size_t before = sides_descriptors();

    alarm(600);
    check_puts(false);
    check_puts(true);
    for (unsigned worker_lies = 0; worker_lies < 2; worker_lies++) {
        check_taken(worker_lies, UINT64_MAX - 7);
        check_taken(worker_lies, UINT64_C(1) << 40);
        check_taken(worker_lies, 4);
    }
    check_back();
    check_rewritten();
    check_streams();
    check_own();
    CHECK_EQUAL(sides_descriptors(), before);
    return 0;
}
