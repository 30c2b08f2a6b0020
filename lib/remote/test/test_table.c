/* The worker's table of handles against a list: drawn numbers and handles, found in both directions after each step, and
 * its bound. */
#include "remote/worker/state.h"
#include "test/check.h"

#include <stdlib.h>
#include <string.h>

#define MOST (1u << 20)
#define OWN (UINT64_C(1) << 62)

static struct remote_worker worker;
static uint64_t state = 1;
static uint64_t forgotten;

/* No stream stands for that of a thread here. */
uint64_t remote_streams_number(struct remote_streams *streams, uint64_t handle) {
    (void)streams;
    return handle == 0x5123 ? 2 : 0;
}

void remote_streams_forget(struct remote_streams *streams, uint64_t context) {
    (void)streams;
    forgotten = context;
}

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void begin(void) {
    remote_table_free(worker.table);
    worker.table = remote_table_new();
    CHECK(worker.table);
}

/* What the table should have; later entries are newer. */
static struct pair {
    enum remote_kind kind;
    uint64_t number, handle;
} pairs[4096];
static size_t count;

static const struct pair *newest(enum remote_kind kind, uint64_t handle) {
    for (size_t i = count; i > 0; i--) {
        if (pairs[i - 1].kind == kind && pairs[i - 1].handle == handle) {
            return &pairs[i - 1];
        }
    }
    return NULL;
}

static struct pair *numbered(enum remote_kind kind, uint64_t number) {
    for (size_t i = 0; i < count; i++) {
        if (pairs[i].kind == kind && pairs[i].number == number) {
            return &pairs[i];
        }
    }
    return NULL;
}

static void check_number(enum remote_kind kind, uint64_t number) {
    const struct pair *p = numbered(kind, number);
    uint64_t handle = 77;

    CHECK_EQUAL(remote_worker_resolve(&worker, kind, number, &handle), p != NULL);
    CHECK_EQUAL(handle, p ? p->handle : 77);
}

static void step(void) {
    static const enum remote_kind kinds[] = {REMOTE_KIND_CUevent, REMOTE_KIND_CUmodule,
                                             REMOTE_KIND_CUcontext};
    enum remote_kind kind = kinds[next() % 3];
    uint64_t number = 3 + next() % 1500, handle = 0x1000 + 16 * (next() % 700);
    struct pair *p;

    switch (next() % 4) {
    case 0:
    case 1:
        p = numbered(kind, number);
        CHECK_EQUAL(remote_worker_room(&worker, kind, number), p ? REMOTE_NO_NUMBER : REMOTE_ROOM);
        CHECK_EQUAL(remote_worker_bind(&worker, kind, number, handle), p == NULL);
        if (!p) {
            pairs[count++] = (struct pair){kind, number, handle};
        }
        break;
    case 2:
        p = count && next() % 2 ? &pairs[next() % count] : numbered(kind, number);
        remote_worker_unbind(&worker, p ? p->kind : kind, p ? p->number : number);
        if (p) {
            count--;
            memmove(p, p + 1, (size_t)(pairs + count - p) * sizeof *p);
        }
        break;
    default:
        number = remote_worker_number(&worker, kind, handle);
        if (newest(kind, handle)) {
            CHECK_EQUAL(number, newest(kind, handle)->number);
        } else {
            CHECK(number >= OWN && !numbered(kind, number));
            pairs[count++] = (struct pair){kind, number, handle};
        }
        break;
    }
    check_number(kind, number);
    check_number(kind, 3 + next() % 1500);
}

static void check_steps(void) {
    begin();
    for (int i = 0; i < 60000 && count < 4000; i++) {
        step();
    }
    for (size_t i = 0; i < count; i++) {
        check_number(pairs[i].kind, pairs[i].number);
        CHECK_EQUAL(remote_worker_number(&worker, pairs[i].kind, pairs[i].handle),
                    newest(pairs[i].kind, pairs[i].handle)->number);
    }
    CHECK(count > 100);
}

static void check_numbers(void) {
    uint64_t handle;

    begin();
    CHECK(!remote_worker_bind(&worker, REMOTE_KIND_CUstream, 2, 0x10));
    CHECK(!remote_worker_bind(&worker, REMOTE_KIND_CUevent, 0, 0x10));
    CHECK(!remote_worker_bind(&worker, REMOTE_KIND_CUevent, OWN, 0x10));
    CHECK(!remote_worker_bind(&worker, REMOTE_KIND_CUevent, UINT64_MAX, 0x10));
    CHECK(remote_worker_bind(&worker, REMOTE_KIND_CUevent, OWN - 1, 0x10));
    CHECK(!remote_worker_bind(&worker, REMOTE_KIND_CUevent, OWN - 1, 0x20));
    CHECK(!remote_worker_resolve(&worker, REMOTE_KIND_CUmodule, OWN - 1, &handle));
    CHECK_EQUAL(remote_worker_number(&worker, REMOTE_KIND_CUevent, 0x10), OWN - 1);
    /* The driver's value where the kind says so. */
    CHECK_EQUAL(remote_worker_number(&worker, REMOTE_KIND_CUtexObject, 9), 9);
    CHECK(remote_worker_resolve(&worker, REMOTE_KIND_CUtexObject, 9, &handle) && handle == 9);
    /* A stream that stands for a thread's is told as that. */
    CHECK_EQUAL(remote_worker_number(&worker, REMOTE_KIND_CUstream, 0x5123), 2);
    /* With a context go the streams of threads. */
    forgotten = 0;
    CHECK(remote_worker_bind(&worker, REMOTE_KIND_CUcontext, 5, 0x10));
    remote_worker_unbind(&worker, REMOTE_KIND_CUcontext, 6);
    CHECK_EQUAL(forgotten, 0);
    remote_worker_unbind(&worker, REMOTE_KIND_CUcontext, 5);
    CHECK_EQUAL(forgotten, 5);
}

static void check_bound(void) {
    uint64_t handle;

    begin();
    for (uint64_t i = 0; i < MOST; i++) {
        CHECK_EQUAL(remote_worker_room(&worker, REMOTE_KIND_CUevent, 1000 + i), REMOTE_ROOM);
        CHECK(remote_worker_bind(&worker, REMOTE_KIND_CUevent, 1000 + i, 0x10000 + 16 * (i / 2)));
    }
    CHECK_EQUAL(remote_worker_room(&worker, REMOTE_KIND_CUevent, 1), REMOTE_FULL);
    CHECK(!remote_worker_bind(&worker, REMOTE_KIND_CUevent, 1, 0x10));
    CHECK_EQUAL(remote_worker_number(&worker, REMOTE_KIND_CUmodule, 0x10), 0);
    for (uint64_t i = 0; i < MOST; i++) {
        CHECK(remote_worker_resolve(&worker, REMOTE_KIND_CUevent, 1000 + i, &handle));
        CHECK_EQUAL(handle, 0x10000 + 16 * (i / 2));
    }
    for (uint64_t i = 0; i < MOST; i++) {
        remote_worker_unbind(&worker, REMOTE_KIND_CUevent, 1000 + i);
        CHECK(i % 4096 || remote_worker_room(&worker, REMOTE_KIND_CUevent, 1) == REMOTE_ROOM);
    }
    CHECK(!remote_worker_resolve(&worker, REMOTE_KIND_CUevent, 1000, &handle));
    CHECK(remote_worker_bind(&worker, REMOTE_KIND_CUevent, 1, 0x10));
}

int main(void) {
    check_steps();
    check_numbers();
    check_bound();
    remote_table_free(worker.table);
    return 0;
}
