/* The arithmetic of the bucket, by tables and with a clock of its own, and what it makes of pages
 * that hold anything. */
#include "share/time.h"
#include "share/test/tenant.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>

#define MS 1000000ll
#define SECOND 1000000000ll
#define NOW 5000000000000ull
#define FUZZ_ROUNDS 20000u

static struct tenant tenant;
static dv_share *share;

static dv_page_budget granted(uint32_t rate, uint64_t burst) {
    return (dv_page_budget){.tick = NOW,
                            .flags = DV_PAGE_BUDGET_LIMITED,
                            .rate = rate,
                            .base = 100000,
                            .stretch = DV_PAGE_WHOLE,
                            .burst = burst,
                            .depth = 4 * MS};
}

static dv_page_bucket *bucket(unsigned device) {
    return &share->gpu[device].bucket;
}

struct row {
    const char *name;
    dv_page_budget budget;
    dv_page_bucket before;
    uint64_t now, ns;
    int64_t balance;
    uint64_t refilled;
};

#define TERMS(rate_, base_, burst_, tick_)                                                         \
    {.flags = 1, .rate = rate_, .base = base_, .burst = burst_, .tick = tick_}
#define HELD(balance_, refilled_) {.balance = balance_, .refilled = refilled_}

static const struct row rows[] = {
    {"a new bucket holds a little", TERMS(500000, 0, 100 * MS, NOW), HELD(0, 0), NOW, 500000,
     3 * MS / 2, NOW},
    {"but no more than its burst", TERMS(500000, 0, MS, NOW), HELD(0, 0), NOW, 0, MS, NOW},
    {"whatever it said before", TERMS(500000, 0, MS, NOW), HELD(SECOND, 0), NOW, 0, MS, NOW},
    {"half a GPU", TERMS(500000, 0, 100 * MS, NOW), HELD(0, NOW - 10 * MS), NOW, 0, 5 * MS, NOW},
    {"a third, to the nearest", TERMS(333333, 0, 100 * MS, NOW), HELD(0, NOW - 10000), NOW, 0, 3333,
     NOW},
    {"debt is paid off", TERMS(250000, 0, 100 * MS, NOW), HELD(-5 * MS, NOW - 8 * MS), NOW, MS,
     -4 * MS, NOW},
    {"credit is clipped before it is spent", TERMS(1000000, 0, 4 * MS, NOW), HELD(0, NOW - SECOND),
     NOW, MS, 3 * MS, NOW},
    {"a lower burst takes nothing away", TERMS(1000000, 0, 4 * MS, NOW), HELD(9 * MS, NOW), NOW, 0,
     9 * MS, NOW},
    {"and nothing is gained beyond it", TERMS(1000000, 0, 4 * MS, NOW), HELD(9 * MS, NOW - SECOND),
     NOW, MS, 8 * MS, NOW},
    {"no burst leaves no credit", TERMS(1000000, 0, 0, NOW), HELD(-MS, NOW - 5 * MS), NOW, 0, 0,
     NOW},
    {"no rate gains nothing", TERMS(0, 500000, 4 * MS, NOW), HELD(-MS, NOW - SECOND), NOW, 0, -MS,
     NOW},
    {"a late tick is no dead arbiter", TERMS(500000, 100000, 100 * MS, NOW - 100 * MS),
     HELD(0, NOW - 10 * MS), NOW, 0, 5 * MS, NOW},
    {"a dead arbiter leaves the base", TERMS(500000, 100000, 100 * MS, NOW - 101 * MS),
     HELD(0, NOW - 10 * MS), NOW, 0, MS, NOW},
    {"so does one that never was", TERMS(500000, 100000, 100 * MS, 0), HELD(0, NOW - 10 * MS), NOW,
     0, MS, NOW},
    {"a tick just ahead lives", TERMS(500000, 100000, 100 * MS, NOW + MS), HELD(0, NOW - 10 * MS),
     NOW, 0, 5 * MS, NOW},
    {"so does one that was decided for a while", TERMS(500000, 100000, 100 * MS, NOW + 500 * MS),
     HELD(0, NOW - 10 * MS), NOW, 0, 5 * MS, NOW},
    {"one of another clock does not", TERMS(500000, 100000, 100 * MS, NOW + SECOND),
     HELD(0, NOW - 10 * MS), NOW, 0, MS, NOW},
    {"too short a span waits", TERMS(500000, 0, 100 * MS, NOW), HELD(0, NOW - 1000), NOW, 10, -10,
     NOW - 1000},
    {"a clock read earlier gains nothing", TERMS(500000, 0, 100 * MS, NOW), HELD(0, NOW + MS), NOW,
     10, -10, NOW + MS},
    {"nor does one read before a long stop", TERMS(500000, 0, 100 * MS, NOW),
     HELD(0, NOW + 59 * SECOND), NOW, 10, -10, NOW + 59 * SECOND},
    {"a refill of another clock is forgotten", TERMS(500000, 0, 100 * MS, NOW),
     HELD(0, NOW + 61 * SECOND), NOW, 10, -10, NOW},
    {"so is one at the end of time", TERMS(500000, 0, 100 * MS, NOW), HELD(0, UINT64_MAX), NOW, 0,
     0, NOW},
    {"no more than two whole GPUs", TERMS(UINT32_MAX, 0, 100 * MS, NOW), HELD(0, NOW - MS), NOW, 0,
     2 * MS, NOW},
    {"no more than a second", TERMS(1000000, 0, UINT64_MAX, NOW), HELD(INT64_MAX, NOW - SECOND),
     NOW, 0, SECOND, NOW},
    {"a long rest at full rate", TERMS(1000000, 0, UINT64_MAX, NOW), HELD(-SECOND, 1), NOW, 0,
     SECOND, NOW},
    {"all of time at full rate", TERMS(1000000, 0, UINT64_MAX, UINT64_MAX), HELD(INT64_MIN, 1),
     UINT64_MAX, 0, SECOND, UINT64_MAX},
    {"debt of a minute stays", TERMS(100000, 0, MS, NOW), HELD(-60 * SECOND, NOW - SECOND), NOW, 0,
     -60 * SECOND + SECOND / 10, NOW},
    {"and is paid off by a long rest", TERMS(100000, 0, MS, NOW), HELD(-499 * SECOND, 1), NOW, 0,
     MS, NOW},
    {"but not sooner", TERMS(100000, 0, MS, NOW), HELD(-501 * SECOND, NOW - 4900 * SECOND), NOW, 0,
     -11 * SECOND, NOW},
    {"debt has an end", TERMS(500000, 0, MS, NOW), HELD(0, NOW), NOW, UINT64_MAX, -DV_TIME_DEBT_NS,
     NOW},
    {"also in the page", TERMS(500000, 0, MS, NOW), HELD(INT64_MIN, NOW), NOW, UINT64_MAX,
     -DV_TIME_DEBT_NS, NOW},
};

static void test_refill(void) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        tenant_grant(&tenant, 0, &row->budget);
        *bucket(0) = row->before;
        int64_t left = dv_time_charge(share, 0, row->now, row->ns, 1);
        if (left != row->balance || bucket(0)->refilled != row->refilled) {
            fprintf(stderr, "%s: %lld, refilled %llu\n", row->name, (long long)left,
                    (unsigned long long)bucket(0)->refilled);
        }
        CHECK_EQUAL(left, row->balance);
        CHECK_EQUAL(bucket(0)->balance, row->balance);
        CHECK_EQUAL(bucket(0)->refilled, row->refilled);
        CHECK_EQUAL(bucket(0)->charged, row->ns);
        CHECK_EQUAL(bucket(0)->launches, 1);
        CHECK(bucket(0)->used == NOW || row->now != NOW);
    }
}

/* Whether the state page was touched since the last call. */
static bool touched(void) {
    const char *path = tenant_path(&tenant, "state");
    const struct timespec past[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    struct stat status;
    CHECK(stat(path, &status) == 0);
    CHECK(utimensat(AT_FDCWD, path, past, 0) == 0);
    return status.st_mtim.tv_sec != 1;
}

/* The first charge after a silence is told, and so is the first wait; none after it. */
static void test_silence(void) {
    dv_page_budget budget = granted(500000, SECOND);
    uint64_t now = NOW;
    tenant_grant(&tenant, 0, &budget);
    *bucket(0) = (dv_page_bucket){.refilled = NOW};
    touched();
    dv_time_charge(share, 0, now, MS, 1);
    CHECK(touched());
    dv_time_charge(share, 0, now += 200 * MS, MS, 1);
    dv_time_charge(share, 0, now += 200 * MS, MS, 1);
    dv_time_charge(share, 0, now - 300 * MS, MS, 1);
    CHECK(!touched());
    errno = 7;
    dv_time_charge(share, 0, now += 251 * MS, MS, 1);
    CHECK(touched());
    CHECK_EQUAL(errno, 7);
    dv_time_wanted(share, 0, now);
    CHECK(touched());
    dv_time_wanted(share, 0, now += 5 * MS);
    CHECK(!touched());
}

/* Many short spans gain what a long one does, within a ns each. */
static void test_refill_adds_up(void) {
    dv_page_budget budget = granted(333333, SECOND);
    tenant_grant(&tenant, 0, &budget);
    *bucket(0) = (dv_page_bucket){.balance = 0, .refilled = NOW};
    unsigned seed = 7, spans = 0;
    uint64_t now = NOW;
    for (; spans < 1000; spans++) {
        now += 5000 + (unsigned)rand_r(&seed) % 100000;
        tenant_write(&tenant, "config", offsetof(dv_page_config, device[0].budget.tick), &now,
                     sizeof now);
        dv_time_balance(share, 0, now);
    }
    int64_t whole = (int64_t)((now - NOW) * 333333 / 1000000);
    CHECK(llabs(bucket(0)->balance - whole) < (long long)spans / 4);
}

static int64_t corrected_by(int64_t done, int64_t due) {
    dv_page_budget budget = granted(500000, SECOND);
    budget.correction = due;
    tenant_grant(&tenant, 0, &budget);
    *bucket(0) = (dv_page_bucket){.balance = -3 * MS, .refilled = NOW, .corrected = done};
    int64_t left = dv_time_balance(share, 0, NOW);
    CHECK_EQUAL(bucket(0)->corrected, due);
    CHECK_EQUAL(dv_time_balance(share, 0, NOW), left);
    return left + 3 * MS;
}

static void test_correction(void) {
    CHECK_EQUAL(corrected_by(0, 0), 0);
    CHECK_EQUAL(corrected_by(0, MS), MS);
    CHECK_EQUAL(corrected_by(0, -MS), -MS);
    CHECK_EQUAL(corrected_by(-9 * SECOND, -8 * SECOND), SECOND);
    CHECK_EQUAL(corrected_by(40 * SECOND, 39 * SECOND), -SECOND);
    /* Credit ends at the burst, debt at what is remembered. */
    CHECK_EQUAL(corrected_by(0, 9 * SECOND), SECOND + 3 * MS);
    CHECK_EQUAL(corrected_by(INT64_MIN, INT64_MAX), SECOND + 3 * MS);
    CHECK_EQUAL(corrected_by(INT64_MAX, INT64_MIN), -DV_TIME_DEBT_NS + 3 * MS);
    CHECK_EQUAL(corrected_by(0, 50 * SECOND), SECOND + 3 * MS);
    /* It comes with a charge as well. */
    dv_page_budget budget = granted(500000, SECOND);
    budget.correction = 2 * MS;
    tenant_grant(&tenant, 0, &budget);
    *bucket(0) = (dv_page_bucket){.refilled = NOW};
    CHECK_EQUAL(dv_time_charge(share, 0, NOW, MS, 1), MS);
}

static void test_portion(void) {
    dv_page_budget budget = granted(500000, SECOND);
    tenant_grant(&tenant, 0, &budget);
    *bucket(0) = (dv_page_bucket){.balance = MS, .refilled = NOW};
    CHECK_EQUAL(dv_time_charge(share, 0, NOW, 200000, 8), 800000);
    CHECK_EQUAL(dv_time_return(share, 0, 150000, 6), 950000);
    CHECK_EQUAL(bucket(0)->charged, 50000);
    CHECK_EQUAL(bucket(0)->launches, 2);
    CHECK_EQUAL(bucket(0)->refilled, NOW);
}

static uint64_t deficit(int64_t held, uint32_t rate) {
    dv_page_budget budget = granted(rate, SECOND);
    tenant_grant(&tenant, 0, &budget);
    *bucket(0) = (dv_page_bucket){.balance = held, .refilled = NOW};
    uint64_t wait = dv_time_deficit_ns(share, 0, NOW);
    if (wait > 0 && wait < DV_TIME_NAP_NS) {
        CHECK(dv_time_balance(share, 0, NOW + wait) >= 0);
    }
    return wait;
}

static void test_deficit(void) {
    CHECK_EQUAL(deficit(0, 250000), 0);
    CHECK_EQUAL(deficit(MS, 250000), 0);
    CHECK_EQUAL(deficit(-MS, 250000), 4 * MS);
    CHECK_EQUAL(deficit(-MS, 300000), 3333334);
    CHECK_EQUAL(deficit(-MS, 10000), DV_TIME_NAP_NS);
    CHECK_EQUAL(deficit(-MS, 0), DV_TIME_NAP_NS);
    CHECK_EQUAL(deficit(INT64_MIN, 1000000), DV_TIME_NAP_NS);
    CHECK(deficit(-1, 1000000) >= 1);
}

static void test_job(void) {
    dv_page_budget budget = granted(500000, SECOND), free_budget = {.flags = 0};
    int64_t balances[] = {4 * MS, -MS, -2 * MS, -9 * MS};
    uint64_t used[] = {NOW, NOW - 50 * MS, NOW - 101 * MS, NOW};
    for (unsigned i = 0; i < 4; i++) {
        tenant_grant(&tenant, i, i == 3 ? &free_budget : &budget);
        *bucket(i) = (dv_page_bucket){.balance = balances[i], .refilled = NOW, .used = used[i]};
    }
    CHECK_EQUAL(dv_time_job_balance(share, 0, NOW), -MS);
    CHECK_EQUAL(dv_time_job_deficit_ns(share, 0, NOW), 2 * MS);
    CHECK_EQUAL(dv_time_job_balance(share, 2, NOW), -2 * MS); /* where the launch goes */
    CHECK_EQUAL(dv_time_job_deficit_ns(share, 2, NOW), 4 * MS);
    CHECK_EQUAL(dv_time_job_balance(share, 3, NOW), -MS);
    CHECK_EQUAL(dv_time_job_balance(share, 0, NOW + 60 * MS), 34 * MS);
    CHECK_EQUAL(dv_time_job_deficit_ns(share, 9, NOW + 90 * MS), 0);
}

static void test_rest(void) {
    dv_page_budget budget = granted(500000, SECOND);
    const uint32_t *word = dv_time_flags_word(share, 0);
    tenant_grant(&tenant, 0, &budget);
    CHECK_EQUAL(*word, DV_PAGE_BUDGET_LIMITED);
    CHECK_EQUAL(dv_time_stretch(share, 0), DV_PAGE_WHOLE);
    CHECK_EQUAL(dv_time_depth(share, 0), 4 * MS);
    budget =
        (dv_page_budget){.flags = DV_PAGE_BUDGET_BEAT, .stretch = UINT32_MAX, .depth = UINT64_MAX};
    tenant_grant(&tenant, 0, &budget);
    CHECK_EQUAL(*dv_time_flags_word(share, 0), DV_PAGE_BUDGET_BEAT);
    CHECK_EQUAL(dv_time_stretch(share, 0), 100000000);
    CHECK_EQUAL(dv_time_depth(share, 0), DV_TIME_DEPTH_NS);
    CHECK_EQUAL(dv_time_balance(share, 0, NOW), INT64_MAX);
    CHECK_EQUAL(dv_time_deficit_ns(share, 0, NOW), 0);
    CHECK_EQUAL(*dv_time_flags_word(share, 99), 0);
    CHECK_EQUAL(dv_time_charge(share, 99, NOW, 1, 1), INT64_MAX);
    CHECK_EQUAL(dv_time_stretch(share, 99), DV_PAGE_WHOLE);
    *bucket(0) = (dv_page_bucket){.refilled = NOW};
    dv_time_wanted(share, 0, NOW + 5);
    dv_time_waited(share, 0, 30);
    dv_time_waited(share, 0, 12);
    CHECK_EQUAL(bucket(0)->wanted, NOW + 5);
    CHECK_EQUAL(bucket(0)->waited, 42);
}

/* Each moment counts once, whoever waited, and no moment that another clock tells of. */
static void test_held_back(void) {
    dv_page_bucket *mine = bucket(1);
    memset(mine, 0, sizeof *mine);
    dv_time_held_back(share, 1, NOW, NOW + 3 * MS, false);
    dv_time_held_back(share, 1, NOW + MS, NOW + 4 * MS, true);
    dv_time_held_back(share, 1, NOW + 2 * MS, NOW + 4 * MS, true);
    CHECK_EQUAL(mine->held_back, 4 * MS);
    CHECK_EQUAL(mine->yielded, MS);
    dv_time_held_back(share, 1, NOW + 10 * MS, NOW + 10 * MS, true);
    dv_time_held_back(share, 1, NOW + 10 * MS, NOW + 9 * MS, true);
    CHECK_EQUAL(mine->held_back, 4 * MS);
    dv_time_held_back(share, 1, NOW + 10 * MS, NOW + 11 * MS, false);
    CHECK_EQUAL(mine->held_back, 5 * MS);
    mine->held_until = UINT64_MAX;
    dv_time_held_back(share, 1, NOW + 20 * MS, NOW + 21 * MS, false);
    CHECK_EQUAL(mine->held_back, 6 * MS);
    CHECK_EQUAL(mine->held_until, NOW + 21 * MS);
    dv_time_held_back(share, 4, NOW, NOW + MS, false); /* no such device */
}

static void on_alarm(int signal) {
    (void)signal;
}

static void test_nap(void) {
    CHECK(prctl(PR_SET_TIMERSLACK, 70000, 0, 0, 0) == 0);
    uint64_t start = os_now_ns();
    errno = 7;
    dv_time_nap(2 * MS);
    CHECK_EQUAL(errno, 7);
    CHECK(os_now_ns() - start >= 2 * MS);
    CHECK_EQUAL(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 70000);
    /* Signals, again and again, so that one falls into the sleep. */
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval often = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    /* A nap that no signal ends lasts a second. One that a signal ended may, on a busy machine. */
    uint64_t lasted = SECOND;
    for (unsigned i = 0; i < 20 && lasted >= SECOND; i++) {
        start = os_now_ns();
        dv_time_nap(UINT64_MAX);
        lasted = os_now_ns() - start;
    }
    CHECK(lasted < SECOND);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

/* Words that damage would leave: small, huge, near the present, or anything. */
static uint64_t any_word(unsigned *seed) {
    uint64_t word =
        (uint64_t)rand_r(seed) << 42 ^ (uint64_t)rand_r(seed) << 21 ^ (uint64_t)rand_r(seed);
    switch (rand_r(seed) % 6) {
    case 0:
        return 0;
    case 1:
        return word % 1000000000;
    case 2:
        return 0 - word % 1000000000;
    case 3:
        return NOW - 1000000000 + word % 2000000000;
    case 4:
        return (word & 1) << 63 | (word & 2) << 1;
    default:
        return word;
    }
}

static void test_any_page(void) {
    unsigned seed = 11;
    for (unsigned round = 0; round < FUZZ_ROUNDS; round++) {
        uint64_t words[sizeof(dv_page_budget) / 8];
        dv_page_budget budget;
        for (unsigned i = 0; i < sizeof words / 8; i++) {
            words[i] = any_word(&seed);
        }
        memcpy(&budget, words, sizeof budget);
        budget.flags |= DV_PAGE_BUDGET_LIMITED;
        tenant_grant(&tenant, round % 4, &budget);
        for (unsigned i = 0; i < sizeof words / 8; i++) {
            words[i] = any_word(&seed);
        }
        memcpy(bucket(round % 4), words, sizeof words);
        uint64_t now = any_word(&seed), ns = any_word(&seed);
        for (unsigned device = 0; device < 4; device++) {
            int64_t left = dv_time_charge(share, device, now, ns, 1);
            CHECK(left >= -DV_TIME_DEBT_NS && left <= DV_TIME_BURST_NS);
            left = dv_time_return(share, device, ns, 1);
            CHECK(left >= -DV_TIME_DEBT_NS && left <= DV_TIME_BURST_NS);
            CHECK(dv_time_job_balance(share, device, now) >= -DV_TIME_DEBT_NS);
            CHECK(dv_time_job_deficit_ns(share, device, any_word(&seed)) <= DV_TIME_NAP_NS);
            CHECK(dv_time_stretch(share, device) >= 10000);
            CHECK(dv_time_depth(share, device) <= DV_TIME_DEPTH_NS);
        }
    }
}

int main(void) {
    tenant_make(&tenant, 4, MIB);
    share = tenant_open(&tenant);
    test_rest();
    test_refill();
    test_silence();
    test_refill_adds_up();
    test_correction();
    test_portion();
    test_deficit();
    test_job();
    test_held_back();
    test_nap();
    test_any_page();
    return 0;
}
