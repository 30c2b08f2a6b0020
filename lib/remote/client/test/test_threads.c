/* Several threads wait for answers, which come in any order: each gets its own. Also while notices come, and functions that
 * are told of them call. */
#include "remote/client/test/setting.h"

#include <pthread.h>
#include <string.h>

#define THREADS 8u
#define CALLS 2000u
#define EACH 97u /* records between two notices */

static unsigned told;

/* Answers that are kept back. */
static struct {
    struct remote_head head;
    uint64_t word;
} kept[THREADS + 1];
static unsigned count;

static void answer_one(struct remote_link *link, unsigned at) {
    setting_answer(link, &kept[at].head, 0, 0, kept[at].word * 3);
    kept[at] = kept[--count];
}

static void answer_all(struct remote_link *link) {
    while (count) {
        answer_one(link, 0);
    }
}

/* Keeps some answers back, and gives them in a drawn order. */
static void shuffle(struct remote_link *link, const struct remote_head *head,
                    const uint64_t *words) {
    static uint64_t random = 88172645463325252u;
    static unsigned long seen;

    if (head->call == REMOTE_cuInit) {
        setting_answer(link, head, 0, 0, 0);
        return;
    }
    if (head->posted) {
        return;
    }
    if (++seen % EACH == 0) {
        setting_notify(link, REMOTE_CALLBACK, seen);
    }
    kept[count].head = *head;
    kept[count++].word = words[0];
    while (count > THREADS / 2) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        answer_one(link, (unsigned)(random % count));
    }
}

static void *call(void *of) {
    uint64_t own = (uint64_t)(uintptr_t)of << 32;

    for (uint64_t i = 0; i < CALLS; i++) {
        uint64_t value = 0;
        CHECK_EQUAL(setting_ask(REMOTE_cuEventQuery, own | i, &value), 0);
        CHECK_EQUAL(value, (own | i) * 3);
    }
    return NULL;
}

static void notice(const struct remote_answer *head, const unsigned char *body, size_t size) {
    struct remote_head posted = {.size = sizeof posted, .call = REMOTE_CALLBACK, .posted = 1};

    CHECK_EQUAL(head->call, REMOTE_CALLBACK);
    CHECK_EQUAL(size, 8);
    (void)body;
    CHECK(remote_send(&posted, NULL, 0));
    __atomic_add_fetch(&told, 1, __ATOMIC_RELEASE);
}

static void test(enum remote_link_kind kind) {
    pthread_t threads[THREADS];
    setting_idle = answer_all;
    setting_start(kind, shuffle);
    CHECK_EQUAL(cuInit(0), 0);
    remote_notice_register(REMOTE_CALLBACK, notice);
    for (uintptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, call, (void *)(i + 1)) == 0); /* NOLINT */
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    UNTIL(__atomic_load_n(&told, __ATOMIC_ACQUIRE) == THREADS * CALLS / EACH);
}

int main(void) {
    return setting_run(test);
}
