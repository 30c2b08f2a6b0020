/* Late errors are told once, in order, in place of a success, and by no call that makes something. Posted calls reach the
 * worker without anybody waiting, and an idle socket has signs of life. */
#include "remote/client/test/setting.h"

#include <string.h>

static unsigned beats;

/* The word says what to answer: the result, and above it what is late. */
static void obey(struct remote_link *link, const struct remote_head *head, const uint64_t *words) {
    uint64_t word = head->call == REMOTE_cuInit || head->posted ? 0 : words[0];

    if (head->call == REMOTE_BEAT) {
        __atomic_add_fetch(&beats, 1, __ATOMIC_RELEASE);
    }

    if (!head->posted) {
        setting_answer(link, head, (int32_t)(word & 0xffff), word >> 16, 5);
    }
}

static int32_t ask(enum remote_number number, uint64_t result, uint64_t late) {
    uint64_t value = 0;
    int32_t told = setting_ask(number, late << 16 | result, &value);

    CHECK_EQUAL(value, result ? 0 : 5);
    return told;
}

static void check_late(void) {
    CHECK_EQUAL(ask(REMOTE_cuEventQuery, 0, 0), 0);
    CHECK_EQUAL(ask(REMOTE_cuEventQuery, 0, 700), 700);
    CHECK_EQUAL(ask(REMOTE_cuEventQuery, 0, 0), 0);
    /* A failure is told as it is, and the late error by the call after it. */
    CHECK_EQUAL(ask(REMOTE_cuEventQuery, 600, 700), 600);
    CHECK_EQUAL(ask(REMOTE_cuEventQuery, 0, 0), 700);
    CHECK_EQUAL(ask(REMOTE_cuEventQuery, 0, 0), 0);
    /* What is allocated is known to the program. The first error is the one that is told. */
    CHECK_EQUAL(ask(REMOTE_cuMemAlloc_v2, 0, 719), 0);
    CHECK_EQUAL(ask(REMOTE_cuStreamCreate, 0, 1), 0);
    CHECK_EQUAL(ask(REMOTE_cuEventQuery, 0, 0), 719);
    CHECK_EQUAL(ask(REMOTE_cuEventQuery, 0, 0), 0);
}

/* With nobody who waits. */
static void check_posted(void) {
    struct remote_head posted = {.size = sizeof posted, .call = REMOTE_cuGraphDestroy, .posted = 1};
    unsigned long before = setting_records();

    for (unsigned i = 1; i <= 100; i++) {
        CHECK(remote_send(&posted, NULL, 0));
        if (i % 10 == 0) {
            UNTIL(setting_records() >= before + i);
        }
    }
}

/* Nobody calls: an idle socket has signs of life, and rings need none. */
static void check_beats(enum remote_link_kind kind) {
    UNTIL(kind == REMOTE_LINK_RINGS || __atomic_load_n(&beats, __ATOMIC_ACQUIRE) >= 5);
    CHECK_EQUAL(ask(REMOTE_cuEventQuery, 0, 0), 0);
    CHECK(kind == REMOTE_LINK_STREAM || __atomic_load_n(&beats, __ATOMIC_ACQUIRE) == 0);
}

static void test(enum remote_link_kind kind) {
    remote_beat_after = 2000000;
    setting_start(kind, obey);
    CHECK_EQUAL(ask(REMOTE_cuEventQuery, CUDA_ERROR_NOT_INITIALIZED, 0),
                CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(setting_connections(), 0);
    CHECK_EQUAL(cuInit(0), 0);
    check_late();
    check_posted();
    check_beats(kind);
}

int main(void) {
    return setting_run(test);
}
