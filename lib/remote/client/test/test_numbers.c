/* The table of numbers against a plain list, with readers beside it; its size after many handles that ended. */
#include "remote/client/test/setting.h"

#include <malloc.h>
#include <pthread.h>

#define MOST 3000u
#define STEPS 400000u

static struct {
    enum remote_kind kind;
    uint64_t number;
} list[MOST];
static unsigned count;
static uint64_t standing[64];
static bool over;

static uint64_t draw(void) {
    static uint64_t random = 0x9e3779b97f4a7c15u;

    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return random;
}

/* What stays is found whatever a writer does; what never was is not. */
static void *read_on(void *of) {
    (void)of;
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
        for (unsigned i = 0; i < 64; i++) {
            CHECK(remote_number_known(REMOTE_KIND_CUevent, standing[i]));
            CHECK(!remote_number_known(REMOTE_KIND_CUstream, standing[i]));
        }
    }
    return NULL;
}

static void step(void) {
    enum remote_kind kind = (enum remote_kind)(1 + draw() % (REMOTE_KINDS - 1));

    if (count < MOST && draw() % 2) {
        uint64_t number = draw() % 4 ? remote_number_new(kind) : draw() | UINT64_C(1) << 63;
        remote_number_learn(kind, number);
        list[count].kind = kind;
        list[count++].number = number;
    } else if (count) {
        unsigned at = (unsigned)(draw() % count);
        CHECK(remote_number_known(list[at].kind, list[at].number));
        remote_number_forget(list[at].kind, list[at].number);
        CHECK(!remote_number_known(list[at].kind, list[at].number));
        list[at] = list[--count];
    }
}

/* Bytes of the heap, and of what is too large for it. */
static size_t held(void) {
    struct mallinfo2 now = mallinfo2();

    return now.uordblks + now.hblkhd;
}

static void check_bounded(void) {
    size_t before = held();

    for (unsigned i = 0; i < 1000000; i++) {
        uint64_t number = remote_number_new(REMOTE_KIND_CUevent);
        CHECK(number);
        remote_number_forget(REMOTE_KIND_CUevent, number);
    }
    CHECK(held() <= before + 4096);
}

int main(void) {
    pthread_t readers[2];
    uint64_t last = 0;

    CHECK(!remote_number_known(REMOTE_KIND_CUevent, 1));
    for (unsigned i = 0; i < 64; i++) {
        standing[i] = remote_number_new(REMOTE_KIND_CUevent);
        CHECK(standing[i] > last);
        last = standing[i];
    }
    for (unsigned i = 0; i < 2; i++) {
        CHECK(pthread_create(&readers[i], NULL, read_on, NULL) == 0);
    }
    for (unsigned i = 0; i < STEPS; i++) {
        step();
    }
    for (unsigned i = 0; i < count; i++) {
        CHECK(remote_number_known(list[i].kind, list[i].number));
    }
    check_bounded();
    __atomic_store_n(&over, true, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < 2; i++) {
        pthread_join(readers[i], NULL);
    }
    return 0;
}
