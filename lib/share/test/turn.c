/* What a share has once: the last of its credit, the turn, and the way out. By a clock that the
 * test moves itself, with threads and processes that race, die and stop. */
#include "share/test/tenant.h"
#include "share/time.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MS 1000000ull
#define NOW 1000000000000ull
#define LATER (NOW + DV_TIME_WAIT_NS)
#define THREADS 8u
#define ROUNDS 2000u

static struct tenant tenant;

static dv_share *with_budget(uint32_t flags, uint32_t rate, int64_t held) {
    dv_page_budget budget = {.tick = NOW,
                             .flags = flags,
                             .rate = rate,
                             .base = rate,
                             .stretch = DV_PAGE_WHOLE,
                             .burst = 1000 * MS};
    tenant_grant(&tenant, 0, &budget);
    dv_share *share = tenant_open(&tenant);
    CHECK(dv_time_worker(share, 0) >= 0);
    share->gpu[0].bucket = (dv_page_bucket){.balance = held, .refilled = NOW};
    for (unsigned i = 0; i < 2 * DV_PAGE_WORKERS; i++) { /* of the tests before */
        share->gpu[i % 2].worker[i / 2].open_since = 0;
    }
    return share;
}

static dv_share *capped(int64_t held) {
    return with_budget(DV_PAGE_BUDGET_LIMITED | DV_PAGE_BUDGET_CAPPED, 100000, held);
}

/* Threads that begin together; each counts how often it was let in. */
struct crowd {
    dv_share *share;
    pthread_barrier_t together;
    unsigned (*enter)(dv_share *share, unsigned round);
    unsigned let_in;
};

static void *member(void *arg) {
    struct crowd *crowd = arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&crowd->together);
        __atomic_add_fetch(&crowd->let_in, crowd->enter(crowd->share, i), __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static unsigned let_in(dv_share *share, unsigned (*enter)(dv_share *, unsigned)) {
    struct crowd crowd = {.share = share, .enter = enter};
    pthread_t threads[THREADS];
    CHECK_EQUAL(pthread_barrier_init(&crowd.together, NULL, THREADS), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, member, &crowd), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    return crowd.let_in;
}

/* In each round the share has gained what one launch takes. */
static unsigned admit_one(dv_share *share, unsigned round) {
    return dv_time_admit(share, 0, NOW + (round + 1) * 1000 * MS, 100 * MS);
}

static void test_last_credit_is_one_launchs(void) {
    dv_share *share = capped(-100 * (int64_t)MS);
    CHECK_EQUAL(let_in(share, admit_one), ROUNDS);
    CHECK_EQUAL(share->gpu[0].bucket.balance, -100 * (int64_t)MS);
    CHECK_EQUAL(share->gpu[0].bucket.launches, ROUNDS);
}

static unsigned escape_one(dv_share *share, unsigned round) {
    return dv_time_escape(share, 0, LATER + round * DV_TIME_WAIT_NS / 4, NOW, false);
}

static void test_one_escapes(void) {
    dv_share *share = capped(-1);
    dv_time_open(share, 0, NOW, NOW + 1);
    CHECK_EQUAL(let_in(share, escape_one), ROUNDS / 4);
    CHECK_EQUAL(share->gpu[0].bucket.overdrawn, ROUNDS / 4);
}

static bool escapes(dv_share *share) {
    return dv_time_escape(share, 0, LATER, NOW, false);
}

static void test_debt_alone_is_waited_for(void) {
    dv_share *share = capped(-1);
    CHECK(!escapes(share));
    dv_time_open(share, 0, NOW + 1, NOW + 2);
    CHECK(!escapes(share)); /* what began later may still end by itself */
    CHECK(!dv_time_escape(share, 0, LATER - 1, NOW, true));
    dv_time_open(share, 0, NOW, NOW + 1);
    CHECK(escapes(share));
    share = capped(-1);
    CHECK(dv_time_escape(share, 0, LATER, NOW, true)); /* the caller knows better than the page */
    share = with_budget(DV_PAGE_BUDGET_LIMITED | DV_PAGE_BUDGET_YIELD, 100000, -1);
    CHECK(escapes(share)); /* a neighbour may work for ever */
    share = with_budget(DV_PAGE_BUDGET_LIMITED, 0, -1);
    CHECK(escapes(share)); /* this debt never shrinks */
    share->gpu[0].bucket.escaped = UINT64_MAX;
    CHECK(escapes(share));
    CHECK(dv_time_escape(share, DV_PAGE_DEVICES, LATER, NOW, false));
}

/* Whatever the page says of when it began, work under way is not waited for without end. */
static void test_work_without_a_begin(void) {
    dv_share *share = capped(-1);
    uint64_t now = NOW;
    for (dv_time_open(share, 0, now, now + 1); !dv_time_escape(share, 0, now, NOW, false);
         now += DV_TIME_WAIT_NS / 2) {
        dv_time_open(share, 0, now, now + 1);
        CHECK(now - NOW < 10 * DV_TIME_WAIT_NS);
    }
}

/* Work of another GPU of the tenant may be what waits. */
static void test_work_elsewhere_counts(void) {
    dv_share *share = capped(-1);
    CHECK(dv_time_worker(share, 1) >= 0);
    dv_time_open(share, 1, NOW, NOW + 1);
    CHECK(dv_time_under_way(share, NOW));
    CHECK(escapes(share));
    dv_time_open(share, 1, 0, 0);
    CHECK(!dv_time_under_way(share, UINT64_MAX));
}

static unsigned hold_turn(dv_share *share, unsigned round) {
    static unsigned inside;
    uint64_t turn = dv_time_turn(share, 0, NOW + round);
    if (turn != 0) {
        CHECK_EQUAL(__atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST), 1);
        CHECK_EQUAL(__atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST), 0);
        dv_time_turn_end(share, 0, turn);
    }
    return turn != 0;
}

static void test_turns(void) {
    dv_share *share = capped(0);
    CHECK(let_in(share, hold_turn) >= ROUNDS);
    uint64_t turn = dv_time_turn(share, 0, NOW);
    CHECK(turn != 0);
    CHECK_EQUAL(dv_time_turn(share, 0, LATER - 1), 0);
    CHECK(dv_time_turn_taken(share, 0, LATER - 1) && !dv_time_turn_taken(share, 0, LATER));
    uint64_t next = dv_time_turn(share, 0, LATER);
    CHECK(next != 0);
    CHECK_EQUAL(share->gpu[0].bucket.overdrawn, 1);
    dv_time_turn_end(share, 0, turn); /* too late: it is another's */
    CHECK_EQUAL(dv_time_turn(share, 0, LATER + 1), 0);
    dv_time_turn_end(share, 0, next);
    CHECK(!dv_time_turn_taken(share, 0, LATER + 1));
    CHECK(dv_time_turn(share, 0, LATER + 1) != 0);
}

static void take_turn(void *arg) {
    dv_share *share = tenant_open(&tenant);
    CHECK(dv_time_worker(share, 0) >= 0);
    CHECK(dv_time_turn(share, 0, *(const uint64_t *)arg) != 0);
    raise(SIGSTOP);
}

/* A process that holds the turn is stopped, and then killed. */
static void test_owner_stops_and_dies(void) {
    dv_share *share = capped(1000 * (int64_t)MS);
    uint64_t begun = NOW;
    pid_t child = spawn(take_turn, &begun);
    wait_stopped(child);
    CHECK_EQUAL(dv_time_turn(share, 0, LATER - 1), 0);
    uint64_t turn = dv_time_turn(share, 0, LATER);
    CHECK(turn != 0);
    dv_time_turn_end(share, 0, turn);
    CHECK(kill(child, SIGKILL) == 0);
    wait_killed(child);

    /* What the dead one's launch can have taken is charged, once. */
    share->gpu[0].bucket = (dv_page_bucket){.balance = 1000 * (int64_t)MS, .refilled = LATER};
    begun = LATER;
    child = spawn(take_turn, &begun);
    wait_stopped(child);
    CHECK(kill(child, SIGKILL) == 0);
    wait_killed(child);
    share->turn_looked[0] = 0;
    turn = dv_time_turn(share, 0, LATER + 700 * MS);
    CHECK_EQUAL(turn, LATER + 700 * MS);
    CHECK_EQUAL(share->gpu[0].bucket.charged, 700 * MS);
    dv_time_turn_end(share, 0, turn);

    begun = LATER;
    child = spawn(take_turn, &begun);
    wait_stopped(child);
    CHECK(kill(child, SIGKILL) == 0);
    wait_killed(child);
    dv_reap(share); /* the page alone tells it now */
    CHECK(dv_time_turn(share, 0, LATER + 60000 * MS) != 0);
    CHECK_EQUAL(share->gpu[0].bucket.charged, 700 * MS + DV_TIME_WAIT_NS);
}

static void test_fork(void) {
    dv_share *share = capped(0);
    uint64_t turn = dv_time_turn(share, 0, NOW);
    CHECK(turn != 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dv_share_forked(share);
        dv_time_turn_end(share, 0, turn); /* the parent's */
        CHECK_EQUAL(dv_time_turn(share, 0, NOW + 1), 0);
        CHECK(dv_time_worker(share, 0) >= 0);
        CHECK_EQUAL(dv_time_turn(share, 0, NOW + 1), 0);
        _exit(0);
    }
    wait_exited(child);
    dv_time_turn_end(share, 0, turn);
    CHECK(dv_time_turn(share, 0, NOW + 1) != 0);
}

/* Whatever the page holds, somebody has a turn after the longest wait. */
static void test_nonsense(void) {
    dv_share *share = capped(0);
    unsigned seed = 1;
    for (unsigned i = 0; i < 20000; i++) {
        dv_page_bucket *bucket = &share->gpu[0].bucket;
        uint64_t owner = (uint64_t)rand_r(&seed) << 32 | (unsigned)rand_r(&seed) % 3000;
        bucket->turn = i % 3 == 0 ? owner : owner & 0xffffffff;
        bucket->since = i % 2 == 0 ? (uint64_t)rand_r(&seed) << 33 : NOW - 10 * MS;
        share->turn_looked[0] = NOW; /* not a system call each */
        if (dv_time_turn(share, 0, NOW) == 0 && dv_time_turn(share, 0, LATER) == 0) {
            CHECK(bucket->since > LATER && bucket->since - LATER <= 1000 * MS);
        }
    }
    CHECK(dv_time_turn(share, DV_PAGE_DEVICES, NOW) != 0);
    dv_time_turn_end(share, DV_PAGE_DEVICES, NOW);
}

int main(void) {
    tenant_make(&tenant, 2, MIB);
    test_last_credit_is_one_launchs();
    test_one_escapes();
    test_debt_alone_is_waited_for();
    test_work_without_a_begin();
    test_work_elsewhere_counts();
    test_turns();
    test_owner_stops_and_dies();
    test_fork();
    test_nonsense();
    tenant_remove(&tenant);
    return 0;
}
