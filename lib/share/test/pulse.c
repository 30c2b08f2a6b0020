/* Pulses between two tenants, by a clock of the test's own. */
#include "share/pulse.h"
#include "share/test/tenant.h"
#include "share/time.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define MS 1000000ull
#define BEGIN 1000000000000ull
#define FUZZ_ROUNDS 3000u

static struct tenant online, offline;
static dv_share *ours, *theirs; /* of online, which beats, and of offline, which gives way */
static dv_page_budget budget;   /* of offline */
static uint64_t now;

static void make_pulse(const struct tenant *tenant, unsigned device) {
    dv_page_pulse page = {.header = {DV_PAGE_PULSE_MAGIC, DV_PAGE_VERSION, sizeof page}};
    char name[32];
    snprintf(name, sizeof name, "pulse.%u", device);
    int file = open(tenant_path(tenant, name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(file >= 0);
    CHECK_EQUAL(write(file, &page, sizeof page), sizeof page);
    CHECK(close(file) == 0);
}

/* What the agent does: a link, a bit, a change to be seen. */
static void link_beat(const char *pulse, const char *beat, unsigned k) {
    char from[128];
    strcpy(from, tenant_path(&online, pulse));
    unlink(tenant_path(&offline, beat));
    CHECK(link(from, tenant_path(&offline, beat)) == 0);
    budget.pulses |= 1u << k;
    budget.pulse_changes++;
    tenant_grant(&offline, 0, &budget);
}

static void set_up(void) {
    now = BEGIN;
    budget = (dv_page_budget){.flags = DV_PAGE_BUDGET_LIMITED | DV_PAGE_BUDGET_YIELD};
    tenant_make(&online, 2, MIB);
    tenant_make(&offline, 1, MIB);
    make_pulse(&online, 0);
    make_pulse(&online, 1);
    ours = tenant_open(&online);
    theirs = tenant_open(&offline);
    link_beat("pulse.0", "beat.0.3", 3);
}

/* Asks when no earlier answer is fresh. */
static uint64_t beating(void) {
    now += DV_PULSE_FRESH_NS + 1;
    return dv_pulse_beating(theirs, 0, now);
}

static void test_raise_and_clear(void) {
    CHECK_EQUAL(beating(), 0);
    dv_pulse_clear(ours, 0); /* nothing to clear yet */
    dv_pulse_until(ours, 0, now, now + 5 * MS);
    uint64_t until = now + 5 * MS;
    CHECK_EQUAL(beating(), until);
    dv_pulse_until(ours, 0, now, now + MS); /* shortens nothing */
    CHECK_EQUAL(beating(), until);
    dv_pulse_until(ours, 0, now, now + 9 * MS);
    until = now + 9 * MS;
    CHECK_EQUAL(beating(), until);
    dv_pulse_clear(ours, 0);
    CHECK_EQUAL(dv_pulse_beating(theirs, 0, now), until); /* fresh enough */
    CHECK_EQUAL(beating(), 0);
    dv_pulse_until(ours, 0, now, now + 5 * MS);
    CHECK(beating() != 0);
    CHECK_EQUAL(dv_pulse_beating(theirs, 0, now + 1), dv_pulse_beating(theirs, 0, now));
    now += 5 * MS;
    CHECK_EQUAL(dv_pulse_beating(theirs, 0, now), 0); /* over, without anybody clearing it */
    CHECK_EQUAL(dv_pulse_beating(theirs, 7, now), 0);
    dv_pulse_until(ours, 7, now, now + MS);
    dv_pulse_clear(ours, 7);
}

/* The latest of all processes and all pages counts, and none that is not granted. */
static void test_several(void) {
    dv_share *other = tenant_open_again(ours);
    uint64_t early = now + 5 * MS, late = now + 7 * MS, last = now + 9 * MS;
    dv_pulse_until(ours, 0, now, early);
    dv_pulse_until(other, 0, now, late);
    CHECK_EQUAL(beating(), late);
    dv_pulse_clear(other, 0);
    CHECK_EQUAL(beating(), early);
    dv_pulse_until(ours, 1, now, last);
    CHECK_EQUAL(beating(), early);
    link_beat("pulse.1", "beat.0.0", 0);
    CHECK_EQUAL(dv_pulse_beating(theirs, 0, now), last); /* a change ends what was fresh */
    budget.pulses = 1u << 3;
    tenant_grant(&offline, 0, &budget);
    CHECK_EQUAL(beating(), early);
    budget.pulses = 0;
    tenant_grant(&offline, 0, &budget);
    CHECK_EQUAL(dv_pulse_beating(theirs, 0, now), 0);
}

static void test_too_far_ahead(void) {
    dv_pulse_until(ours, 0, now, UINT64_MAX);
    CHECK_EQUAL(ours->pulse[0]->until[0], now + DV_PULSE_AHEAD_NS);
    ours->pulse[0]->until[0] = UINT64_MAX;
    CHECK_EQUAL(beating(), now + DV_PULSE_AHEAD_NS);
    ours->pulse[0]->words = UINT32_MAX;
    CHECK_EQUAL(beating(), now + DV_PULSE_AHEAD_NS);
    dv_pulse_until(ours, 0, now, now + MS); /* what nobody can have said is replaced */
    CHECK_EQUAL(ours->pulse[0]->until[0], now + MS);
}

static void beat_and_die(void *arg) {
    (void)arg;
    dv_share_forked(ours);
    dv_pulse_until(ours, 0, now, now + 20 * MS);
    raise(SIGKILL);
}

static void test_dead_neighbour(void) {
    uint64_t until = now + 20 * MS;
    wait_killed(spawn(beat_and_die, NULL));
    CHECK_EQUAL(beating(), until);
    now = until;
    CHECK_EQUAL(beating(), 0);
}

static void test_damaged_pages(void) {
    dv_pulse_until(ours, 0, now, now + 900 * MS);
    CHECK(beating() != 0);
    CHECK(truncate(tenant_path(&online, "pulse.0"), 0) == 0);
    CHECK_EQUAL(beating(), 0);
    CHECK(truncate(tenant_path(&online, "pulse.0"), sizeof(dv_page_pulse)) == 0);
    CHECK_EQUAL(beating(), 0); /* zeros are no page */
    make_pulse(&online, 0);
    dv_pulse_until(ours, 0, now, now + 5 * MS);
    CHECK(beating() != 0);
    /* A page that is missing is looked for again. */
    unlink(tenant_path(&offline, "beat.0.3"));
    budget.pulse_changes++;
    tenant_grant(&offline, 0, &budget);
    CHECK_EQUAL(beating(), 0);
    link_beat("pulse.0", "beat.0.3", 3);
    CHECK(mkfifo(tenant_path(&offline, "beat.0.4"), 0600) == 0);
    budget.pulses |= 1u << 4;
    tenant_grant(&offline, 0, &budget);
    CHECK(beating() != 0);
}

static void test_no_page_of_our_own(void) {
    dv_share *other = tenant_open_again(ours);
    unlink(tenant_path(&online, "pulse.1"));
    dv_pulse_until(other, 1, now, now + MS);
    CHECK(other->pulse[1] == NULL);
    make_pulse(&online, 1);
    CHECK(truncate(tenant_path(&online, "pulse.1"), 100) == 0);
    now += 101 * MS;
    dv_pulse_until(other, 1, now, now + MS);
    CHECK(other->pulse[1] == NULL);
    make_pulse(&online, 1);
    dv_pulse_until(other, 1, now, now + MS);
    CHECK(other->pulse[1] == NULL); /* not yet tried again */
    now += 101 * MS;
    dv_pulse_until(other, 1, now, now + MS);
    CHECK(other->pulse[1] != NULL);
    CHECK_EQUAL(other->pulse[1]->until[dv_time_worker(other, 1)], now + MS);
}

/* Puts an eventfd where the page was open, and looks whether it is neither read nor closed. */
static void replace_descriptor(bool changes) {
    int file = theirs->beats[0].page[3].file - 1, event = eventfd(41, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(file >= 3 && event >= 0);
    CHECK_EQUAL(dup2(event, file), file);
    budget.pulse_changes += changes;
    tenant_grant(&offline, 0, &budget);
    CHECK(beating() != 0);
    uint64_t count = 0;
    CHECK_EQUAL(read(file, &count, sizeof count), sizeof count);
    CHECK_EQUAL(count, 41);
    close(file);
    close(event);
}

/* A program that closes every descriptor and puts its own there loses nothing from them. */
static void test_closed_descriptors(void) {
    dv_pulse_until(ours, 0, now, now + 900 * MS);
    CHECK(beating() != 0);
    CHECK(close(theirs->beats[0].page[3].file - 1) == 0);
    CHECK(beating() != 0);
    replace_descriptor(false);
    replace_descriptor(true);
}

static void test_any_page(void) {
    unsigned seed = 5;
    uint32_t words[sizeof(dv_page_pulse) / 4];
    for (unsigned round = 0; round < FUZZ_ROUNDS; round++) {
        for (unsigned i = 0; i < sizeof words / 4; i++) {
            words[i] = (uint32_t)rand_r(&seed) << 8 ^ (uint32_t)rand_r(&seed);
        }
        if (round % 2 == 0) {
            dv_page_header header = {DV_PAGE_PULSE_MAGIC, DV_PAGE_VERSION, sizeof words};
            memcpy(words, &header, sizeof header);
        }
        tenant_write(&online, "pulse.0", 0, words, sizeof words);
        uint64_t until = beating();
        CHECK(until == 0 || (until > now && until <= now + DV_PULSE_AHEAD_NS));
        CHECK(until == 0 || round % 2 == 0);
        dv_pulse_until(ours, 0, now, now + MS);
        dv_pulse_clear(ours, 0);
    }
}

static void *ask_and_tell(void *arg) {
    uint64_t mine = BEGIN;
    for (unsigned i = 0; i < 20000; i++) {
        mine += 7000;
        dv_pulse_until(ours, 0, mine, mine + MS);
        uint64_t until = dv_pulse_beating(theirs, 0, mine);
        CHECK(until == 0 || until > mine);
        if (arg != NULL && i % 1000 == 0) {
            tenant_grant(&offline, 0, arg);
            ((dv_page_budget *)arg)->pulse_changes++;
        }
    }
    return NULL;
}

static void test_threads(void) {
    pthread_t threads[3];
    for (unsigned i = 0; i < 3; i++) {
        CHECK(pthread_create(&threads[i], NULL, ask_and_tell, i == 0 ? &budget : NULL) == 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

int main(void) {
    static void (*const tests[])(void) = {test_raise_and_clear, test_several,
                                          test_too_far_ahead,   test_dead_neighbour,
                                          test_damaged_pages,   test_no_page_of_our_own,
                                          test_any_page,        test_closed_descriptors,
                                          test_threads};
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        set_up();
        errno = 0;
        tests[i]();
        tenant_remove(&online);
        tenant_remove(&offline);
    }
    return 0;
}
