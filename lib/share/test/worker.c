/* Workers: each copy of the library has its own, and those of the dead are used again. */
#include "share/test/tenant.h"
#include "share/time.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tenant tenant;

static const dv_page_worker *worker(const dv_share *share, int number) {
    return &share->gpu[0].worker[number];
}

static void test_publish(void) {
    dv_share *share = tenant_open(&tenant);
    dv_time_interval(share, 0, 1, 2, 3); /* no worker is taken, so nothing is told */
    dv_time_open(share, 0, 1, 2);
    dv_time_unmeasured(share, 0, 1);
    CHECK_EQUAL(worker(share, 0)->count, 0);
    CHECK_EQUAL(dv_time_worker(share, 0), 0);
    CHECK_EQUAL(dv_time_worker(share, 0), 0);
    CHECK_EQUAL(dv_time_worker(share, 2), -1);
    uint32_t owner = worker(share, 0)->owner;
    CHECK_EQUAL(owner & ((1u << DV_PAGE_OWNER_BITS) - 1), own_slot(share) + 1);
    CHECK_EQUAL(owner >> 16, share->state->slot[own_slot(share)].generation);
    CHECK_EQUAL(owner & DV_PAGE_OWNER_TAKING, 0);
    dv_time_open(share, 0, 10, 20);
    CHECK_EQUAL(worker(share, 0)->open_since, 10);
    CHECK_EQUAL(worker(share, 0)->open_until, 20);
    for (unsigned i = 0; i < DV_PAGE_INTERVALS + 3; i++) {
        dv_time_interval(share, 0, 100 + i, 200 + i, i);
    }
    CHECK_EQUAL(worker(share, 0)->count, DV_PAGE_INTERVALS + 3);
    CHECK_EQUAL(worker(share, 0)->open_since, 0);
    CHECK_EQUAL(worker(share, 0)->interval[2].begin, 100 + DV_PAGE_INTERVALS + 2);
    CHECK_EQUAL(worker(share, 0)->interval[3].end, 203);
    CHECK_EQUAL(worker(share, 0)->interval[2].charged, DV_PAGE_INTERVALS + 2);
    dv_time_unmeasured(share, 0, 5);
    dv_time_unmeasured(share, 0, 6);
    CHECK_EQUAL(worker(share, 0)->unmeasured, 11);
    CHECK_EQUAL(dv_time_worker(share, 1), 0); /* of another GPU */
    CHECK_EQUAL(share->gpu[1].worker[0].count, 0);
}

/* A share counts as a copy of the library: each keeps its place to itself. */
static void test_copies(void) {
    dv_share *one = tenant_open(&tenant), *other = tenant_open_again(one);
    CHECK_EQUAL(dv_time_worker(one, 0), 0);
    CHECK_EQUAL(dv_time_worker(other, 0), 1);
    CHECK_EQUAL(worker(one, 0)->owner, worker(one, 1)->owner);
    dv_time_interval(other, 0, 1, 2, 3);
    CHECK_EQUAL(worker(one, 0)->count, 0);
    CHECK_EQUAL(worker(one, 1)->count, 1);
}

static void test_fork(void) {
    dv_share *share = tenant_open(&tenant);
    CHECK_EQUAL(dv_time_worker(share, 0), 0);
    dv_time_interval(share, 0, 1, 2, 3);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dv_share_forked(share);
        dv_time_interval(share, 0, 4, 5, 6);
        CHECK_EQUAL(worker(share, 0)->count, 1);
        CHECK_EQUAL(dv_time_worker(share, 0), 1);
        CHECK(worker(share, 0)->owner != worker(share, 1)->owner);
        dv_time_interval(share, 0, 4, 5, 6);
        _exit(0);
    }
    wait_exited(child);
    CHECK_EQUAL(worker(share, 0)->count, 1);
    CHECK_EQUAL(worker(share, 1)->count, 1);
}

/* Takes workers until there are no more, tells of work in each, and dies. */
static void take_all(void *arg) {
    (void)arg;
    dv_share *share = tenant_open(&tenant);
    for (int i = 0; i < (int)DV_PAGE_WORKERS; i++) {
        CHECK_EQUAL(dv_time_worker(share, 0), i);
        dv_time_interval(share, 0, 1, 2, 3);
        dv_time_unmeasured(share, 0, 4);
        dv_time_open(share, 0, 5, 6);
        share = tenant_open_again(share);
    }
    CHECK_EQUAL(dv_time_worker(share, 0), -1);
    CHECK_EQUAL(dv_time_worker(share, 0), -1);
    CHECK(dv_time_worker(share, 1) >= 0);
    dv_time_interval(share, 0, 1, 2, 3);
    raise(SIGSTOP);
}

static void test_takeover(void) {
    pid_t child = spawn(take_all, NULL);
    wait_stopped(child);
    dv_share *share = tenant_open(&tenant);
    CHECK(dv_reserve(share, 0, DV_PAGE_UNIT) == DV_OK); /* a slot beside the living one */
    CHECK_EQUAL(dv_time_worker(share, 0), -1);
    CHECK(kill(child, SIGKILL) == 0);
    wait_killed(child);
    share->worker[0].retry = 0; /* a second later */
    CHECK_EQUAL(dv_time_worker(share, 0), 0);
    CHECK_EQUAL(worker(share, 0)->count, 0);
    CHECK_EQUAL(worker(share, 0)->open_since, 0);
    CHECK_EQUAL(worker(share, 0)->unmeasured, 0);
    CHECK_EQUAL(worker(share, 1)->count, 1); /* the others stay for the arbiter */
    dv_reap(share);
    dv_share *other = tenant_open_again(share);
    CHECK_EQUAL(dv_time_worker(other, 0), 1);
}

static void take_and_die(void *arg) {
    dv_share *share = tenant_open(&tenant);
    int number = dv_time_worker(share, 0);
    CHECK(number >= 0 && number <= *(int *)arg);
    raise(SIGKILL);
}

/* Any number of processes, one after the other, need no more than one worker. */
static void test_succession(void) {
    int most = 0;
    for (unsigned i = 0; i < 2 * DV_PAGE_WORKERS; i++) {
        wait_killed(spawn(take_and_die, &most));
    }
}

static void test_half_claimed(void) {
    dv_share *share = tenant_open(&tenant);
    dv_page_worker *first = &share->gpu[0].worker[0];
    CHECK(dv_reserve(share, 0, DV_PAGE_UNIT) == DV_OK);
    first->owner = 9 | DV_PAGE_OWNER_TAKING; /* died while it took the worker over */
    first->count = 77;
    CHECK_EQUAL(dv_time_worker(share, 0), 0);
    CHECK_EQUAL(first->count, 0);
}

/* Owners may be anything; what is taken is a worker all the same, or nothing. */
static void test_any_owner(void) {
    dv_share *share = tenant_open(&tenant);
    unsigned seed = 3;
    for (unsigned round = 0; round < 500; round++) {
        for (unsigned i = 0; i < DV_PAGE_WORKERS; i++) {
            uint32_t word = (uint32_t)rand_r(&seed) << 8 ^ (uint32_t)rand_r(&seed);
            share->gpu[0].worker[i].owner = round % 2 == 0 ? word : word & 0x187ff;
            share->gpu[0].worker[i].count = (uint32_t)rand_r(&seed) * 5;
        }
        share->worker[0] = (dv_own_worker){0};
        int number = dv_time_worker(share, 0);
        CHECK(number >= -1 && number < (int)DV_PAGE_WORKERS);
        share->gpu[0].worker[number < 0 ? 0 : number].count = UINT32_MAX;
        dv_time_interval(share, 0, 1, 2, 3);
        CHECK(number < 0 || worker(share, number)->count == 0);
    }
}

int main(void) {
    static void (*const tests[])(void) = {test_publish,  test_copies,     test_fork,
                                          test_takeover, test_succession, test_half_claimed,
                                          test_any_owner};
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        tenant_make(&tenant, 2, MIB);
        tests[i]();
        tenant_remove(&tenant);
    }
    return 0;
}
