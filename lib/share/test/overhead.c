/* What the agent measured counts like memory in use, for as long as it may still be there. */
#define _GNU_SOURCE
#include "share/test/tenant.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#define UNIT ((uint64_t)DV_PAGE_UNIT)
#define LIMIT (64 * UNIT)

static struct tenant tenant;

/* As the agent writes: the figure first. */
static void measure(uint64_t overhead, uint64_t measured) {
    size_t at = offsetof(dv_page_config, device);
    tenant_write(&tenant, "config", at + offsetof(dv_page_device, overhead), &overhead,
                 sizeof overhead);
    tenant_write(&tenant, "config", at + offsetof(dv_page_device, measured), &measured,
                 sizeof measured);
}

static dv_status take(dv_share *share, uint64_t bytes) {
    dv_status status = dv_reserve(share, 0, bytes);
    if (status == DV_OK) {
        dv_settle(share, 0, bytes, bytes);
    }
    return status;
}

static uint64_t shown(dv_share *share) {
    dv_usage_t usage;
    CHECK(dv_usage(share, 0, &usage));
    CHECK_EQUAL(usage.overhead, usage.used);
    return usage.used;
}

/* A request that fits by this rule is granted, and any other is refused: beside what is used stands
 * the figure, unless it is old and something has ended since it was measured. */
static void follows_the_rule(void) {
    tenant_make(&tenant, 1, LIMIT);
    dv_share *share = tenant_open(&tenant);
    srand(4711);
    unsigned granted = 0, refused = 0;
    for (unsigned i = 0; i < 4000; i++) {
        uint64_t now = os_now_ns(), overhead = (uint64_t)(rand() % 70) * UNIT;
        bool blind = rand() % 2, ended = rand() % 2;
        uint64_t measured = now - (blind ? DV_PAGE_BLIND_NS + 1 : 1000);
        share->gpu[0].eased = ended ? measured + 1 : measured - 1;
        if (ended && !blind) {
            continue; /* waits, see below */
        }
        measure(overhead, measured);
        uint64_t counts = ended ? 0 : overhead;
        CHECK_EQUAL(shown(share), counts);
        uint64_t wanted = (uint64_t)(1 + rand() % 70) * UNIT;
        dv_status expected = wanted + counts <= LIMIT ? DV_OK : DV_NO_MEMORY;
        granted += expected == DV_OK;
        refused += expected != DV_OK;
        CHECK_EQUAL(take(share, wanted), expected);
        dv_release(share, 0, expected == DV_OK ? wanted : 0);
        CHECK_EQUAL(used_bytes(share, 0), counts);
    }
    CHECK(granted > 500 && refused > 500);
    tenant_remove(&tenant);
}

/* Waits until its parent waits for room, and then measures as arg says. */
static void answer(void *arg) {
    dv_share *share = tenant_open(&tenant);
    die_with_parent();
    while (share->gpu[0].waiting == 0) {
        sched_yield();
    }
    measure(*(uint64_t *)arg, os_now_ns());
}

/* Something ended since the figure was measured: the next figure decides. */
static void waits_for_the_next_figure(uint64_t next, dv_status expected) {
    tenant_make(&tenant, 1, LIMIT);
    dv_share *share = tenant_open(&tenant);
    CHECK_EQUAL(take(share, UNIT), DV_OK);
    measure(40 * UNIT, os_now_ns());
    dv_eased(share, 0);
    CHECK_EQUAL(take(share, 4 * UNIT), DV_OK); /* fits either way */
    CHECK_EQUAL(share->gpu[0].waiting, 0);
    pid_t agent = spawn(answer, &next);
    CHECK_EQUAL(take(share, 40 * UNIT), expected);
    wait_exited(agent);
    tenant_remove(&tenant);
}

/* Nobody measures again in time: nobody is refused for memory that may be free. */
static void no_figure_in_time(void) {
    tenant_make(&tenant, 1, LIMIT);
    dv_share *share = tenant_open(&tenant);
    measure(40 * UNIT, os_now_ns());
    dv_eased(share, 0);
    CHECK_EQUAL(take(share, 40 * UNIT), DV_OK);
    tenant_remove(&tenant);
}

/* A moment that lies in the future keeps nobody from what is measured from now on. */
static void forged_moment(void) {
    uint64_t same = 40 * UNIT;
    tenant_make(&tenant, 1, LIMIT);
    dv_share *share = tenant_open(&tenant);
    measure(same, os_now_ns());
    share->gpu[0].eased = UINT64_MAX;
    pid_t agent = spawn(answer, &same);
    CHECK_EQUAL(take(share, 40 * UNIT), DV_NO_MEMORY);
    wait_exited(agent);
    tenant_remove(&tenant);
}

static void neighbour(void *arg) {
    dv_share *share = tenant_open(&tenant);
    (void)arg;
    CHECK_EQUAL(take(share, 10 * UNIT), DV_OK);
    raise(SIGSTOP);
}

/* What a killed neighbour took may be in the figure: who reaps it does not count it for certain. */
static void killed_neighbour(void) {
    uint64_t none = 0;
    tenant_make(&tenant, 1, LIMIT);
    dv_share *share = tenant_open(&tenant);
    pid_t child = spawn(neighbour, NULL);
    wait_stopped(child);
    CHECK_EQUAL(take(share, UNIT), DV_OK);
    measure(30 * UNIT, os_now_ns());
    CHECK_EQUAL(kill(child, SIGKILL), 0);
    wait_killed(child);
    pid_t agent = spawn(answer, &none);
    CHECK_EQUAL(take(share, 60 * UNIT), DV_OK);
    wait_exited(agent);
    tenant_remove(&tenant);
}

/* Who measures: the agent while its figure is fresh. */
static void tells_who_measures(void) {
    uint64_t bytes;
    tenant_make(&tenant, 1, LIMIT);
    dv_share *share = tenant_open(&tenant);
    CHECK(!dv_measured(share, 0, &bytes) && bytes == 0);
    measure(3 * UNIT, os_now_ns());
    CHECK(dv_measured(share, 0, &bytes) && bytes == 3 * UNIT);
    measure(3 * UNIT, os_now_ns() - DV_PAGE_BLIND_NS - 1);
    CHECK(!dv_measured(share, 0, &bytes) && bytes == 3 * UNIT);
    dv_eased(share, 0);
    CHECK(!dv_measured(share, 0, &bytes) && bytes == 0);
    CHECK(!dv_measured(share, 1, &bytes) && bytes == 0);
    dv_eased(share, 1);
    tenant_remove(&tenant);
}

int main(void) {
    follows_the_rule();
    waits_for_the_next_figure(0, DV_OK);
    waits_for_the_next_figure(40 * UNIT, DV_NO_MEMORY);
    no_figure_in_time();
    forged_moment();
    killed_neighbour();
    tells_who_measures();
    return 0;
}
