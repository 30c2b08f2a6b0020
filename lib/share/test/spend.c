/* Processes and threads spend from one bucket, by a clock that they move themselves. Not a
 * nanosecond may be gained or lost; nor may a process that is killed in the middle hold up others
 * or take more with it than what it was doing. */
#include "share/test/tenant.h"
#include "share/time.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PROCESSES 4u
#define THREADS 3u
#define ROUNDS 20000u
#define STEP 20000u /* most that a thread moves the clock at once, ns */
#define BEGIN 1000000000000ull
#define KILLS 150u

/* What all processes of the test see. */
struct book {
    uint64_t clock;   /* ns */
    uint64_t charged; /* ns, counted before it is charged */
    uint64_t begun;   /* charges begun and */
    uint64_t done;    /* finished, by all */
    int64_t corrected;
};

static struct tenant tenant;
static struct book *book;
static dv_page_budget budget;

static uint64_t move_clock(uint64_t ns) {
    return __atomic_add_fetch(&book->clock, ns, __ATOMIC_SEQ_CST);
}

static void begin(uint32_t rate, uint64_t burst) {
    memset(book, 0, sizeof *book);
    book->clock = BEGIN;
    budget = (dv_page_budget){.tick = BEGIN,
                              .flags = DV_PAGE_BUDGET_LIMITED,
                              .rate = rate,
                              .base = rate,
                              .stretch = DV_PAGE_WHOLE,
                              .burst = burst};
    tenant_make(&tenant, 1, MIB);
    tenant_grant(&tenant, 0, &budget);
    dv_share *share = tenant_open(&tenant);
    CHECK_EQUAL(dv_time_charge(share, 0, BEGIN, 0, 0), DV_TIME_START_NS);
}

static void charge(dv_share *share, uint64_t now, uint64_t ns) {
    __atomic_fetch_add(&book->begun, 1, __ATOMIC_SEQ_CST);
    dv_time_charge(share, 0, now, ns, 1);
    __atomic_fetch_add(&book->charged, ns, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&book->done, 1, __ATOMIC_SEQ_CST);
}

/* Charges about as much as the clock moves, so that the balance stays between its bounds; some of
 * it in portions of which a part is given back. */
static void *spend_freely(void *arg) {
    dv_share *share = arg;
    unsigned seed = (unsigned)(uintptr_t)&seed ^ (unsigned)getpid();
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t step = 1 + (unsigned)rand_r(&seed) % STEP;
        uint64_t now = move_clock(step);
        if (i % 4 == 0) {
            charge(share, now, step + 5000);
            dv_time_return(share, 0, 5000, 0);
            __atomic_fetch_sub(&book->charged, 5000, __ATOMIC_SEQ_CST);
        } else {
            charge(share, now, step);
        }
    }
    return NULL;
}

/* Never charges without credit. */
static void *spend_credit(void *arg) {
    dv_share *share = arg;
    unsigned seed = (unsigned)(uintptr_t)&seed ^ (unsigned)getpid();
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t now = move_clock((unsigned)rand_r(&seed) % STEP);
        if (dv_time_balance(share, 0, now) >= 0) {
            charge(share, now, STEP);
        }
    }
    return NULL;
}

static void run_threads(void *work) {
    pthread_t threads[THREADS];
    dv_share *share = tenant_open(&tenant);
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, *(void *(**)(void *))work, share) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

/* The arbiter's part, while the others spend. */
static void correct_now_and_then(void) {
    size_t at = offsetof(dv_page_config, device[0].budget.correction);
    for (unsigned i = 0; i < 200; i++) {
        book->corrected += i % 2 == 0 ? 700 + (int)i : -650;
        tenant_write(&tenant, "config", at, &book->corrected, sizeof book->corrected);
        usleep(100);
    }
}

static void run_processes(void *(*work)(void *), void (*meanwhile)(void)) {
    pid_t children[PROCESSES];
    for (unsigned i = 0; i < PROCESSES; i++) {
        children[i] = spawn(run_threads, &work);
    }
    if (meanwhile != NULL) {
        meanwhile();
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        wait_exited(children[i]);
    }
}

static void test_conservation(void) {
    begin(DV_PAGE_WHOLE, SIZE_MAX);
    run_processes(spend_freely, correct_now_and_then);
    dv_share *share = tenant_open(&tenant);
    const dv_page_bucket *bucket = &share->gpu[0].bucket;
    dv_time_balance(share, 0, move_clock(STEP)); /* takes the last correction */
    CHECK_EQUAL(bucket->charged, book->charged);
    CHECK_EQUAL(bucket->launches, PROCESSES * THREADS * ROUNDS);
    CHECK_EQUAL(bucket->refilled, book->clock);
    CHECK_EQUAL(bucket->corrected, book->corrected);
    int64_t gained = (int64_t)(bucket->refilled - BEGIN) + DV_TIME_START_NS + book->corrected;
    CHECK_EQUAL(bucket->balance, gained - (int64_t)book->charged);
    tenant_remove(&tenant);
}

/* Who looks and then charges can be as many as there are threads. A ns is rounded per refill. */
static void test_rate(void) {
    static const uint64_t burst = 3000000;
    begin(300000, burst);
    run_processes(spend_credit, NULL);
    uint64_t span = book->clock - BEGIN;
    uint64_t most = span / 10 * 3 + burst + (uint64_t)PROCESSES * THREADS * STEP +
                    2ull * PROCESSES * THREADS * ROUNDS;
    CHECK(book->charged <= most);
    CHECK(book->charged >= span / 10 * 3 - 2ull * PROCESSES * THREADS * ROUNDS - 2 * burst);
    tenant_remove(&tenant);
}

static void spend_for_ever(void *arg) {
    (void)arg;
    for (;;) {
        void *(*work)(void *) = spend_freely;
        run_threads(&work);
    }
}

static void wait_for_charges(uint64_t more) {
    uint64_t until = load64(&book->done) + more;
    while (load64(&book->done) < until) {
        usleep(50);
    }
}

/* Between the swap and the counters beside it a thread can be killed; that is all that may show. */
static void test_kills(void) {
    begin(DV_PAGE_WHOLE, SIZE_MAX);
    dv_share *share = tenant_open(&tenant);
    pid_t children[2];
    for (unsigned i = 0; i < 2; i++) {
        children[i] = spawn(spend_for_ever, NULL);
    }
    for (unsigned i = 0; i < KILLS; i++) {
        wait_for_charges(1 + i * 37 % 500);
        CHECK(kill(children[i % 2], SIGKILL) == 0);
        wait_killed(children[i % 2]);
        uint64_t now = move_clock(STEP);
        charge(share, now, STEP); /* nobody holds us up */
        children[i % 2] = spawn(spend_for_ever, NULL);
    }
    for (unsigned i = 0; i < 2; i++) {
        CHECK(kill(children[i], SIGKILL) == 0);
        wait_killed(children[i]);
    }
    const dv_page_bucket *bucket = &share->gpu[0].bucket;
    uint64_t now = move_clock(STEP);
    dv_time_balance(share, 0, now);
    CHECK_EQUAL(bucket->refilled, now);
    int64_t gained = (int64_t)(now - BEGIN) + DV_TIME_START_NS;
    int64_t taken = gained - bucket->balance;
    int64_t most = (int64_t)(KILLS + 2) * THREADS * (STEP + 5000);
    CHECK(llabs(taken - (int64_t)bucket->charged) <= most);
    CHECK(llabs(taken - (int64_t)book->charged) <= most);
    CHECK(book->begun - book->done <= (KILLS + 2ull) * THREADS);
    tenant_remove(&tenant);
}

int main(void) {
    book = mmap(NULL, sizeof *book, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(book != MAP_FAILED);
    test_conservation();
    test_rate();
    test_kills();
    return 0;
}
