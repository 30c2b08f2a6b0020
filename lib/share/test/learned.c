/* What one process learned, the next one knows, in a table that is bounded and survives nonsense. */
#include "share/test/tenant.h"
#include "share/time.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS (4 * DV_PAGE_COSTS)
#define THREADS 4u

static struct tenant tenant;

/* Keys with all bits in use, which each process finds alike. */
static uint64_t key_of(uint64_t n) {
    uint64_t key = (n + 1) * 0x9e3779b97f4a7c15u;
    return (key ^ key >> 29) * 0xbf58476d1ce4e5b9u;
}

static void learn(void *arg) {
    dv_share *share = tenant_open(&tenant);
    dv_time_learn(share, 0, key_of(1), *(const uint64_t *)arg);
}

static void test_outlives_its_process(void) {
    uint64_t ns = 500000000;
    wait_exited(spawn(learn, &ns));
    const dv_share *share = tenant_open(&tenant);
    CHECK_EQUAL(dv_time_learned(share, 0, key_of(1)), ns);
    CHECK_EQUAL(dv_time_learned(share, 1, key_of(1)), 0); /* another GPU may be a slower one */
    CHECK_EQUAL(dv_time_learned(share, 0, key_of(2)), 0);
    ns = 400000000;
    wait_exited(spawn(learn, &ns));
    CHECK_EQUAL(dv_time_learned(share, 0, key_of(1)), ns);
}

static void test_bounds(void) {
    dv_share *share = tenant_open(&tenant);
    dv_time_learn(share, 1, key_of(3), 0);
    CHECK_EQUAL(dv_time_learned(share, 1, key_of(3)), 1);
    dv_time_learn(share, 1, key_of(3), UINT64_MAX);
    CHECK_EQUAL(dv_time_learned(share, 1, key_of(3)), DV_TIME_DEBT_NS);
    dv_time_learn(share, 1, 0, 5);
    CHECK_EQUAL(dv_time_learned(share, 1, 0), 0);
    dv_time_learn(share, DV_PAGE_DEVICES, key_of(3), 5);
    CHECK_EQUAL(dv_time_learned(share, DV_PAGE_DEVICES, key_of(3)), 0);
}

static uint64_t price_of(uint64_t n) {
    return 1 + n;
}

/* More than the table holds, by several threads: each key reads as its own price or as unknown. */
static void *crowd(void *arg) {
    dv_share *share = arg;
    for (uint64_t i = 0; i < KEYS; i++) {
        dv_time_learn(share, 0, key_of(i), price_of(i));
        uint64_t other = (i * 7919) % KEYS, ns = dv_time_learned(share, 0, key_of(other));
        CHECK(ns == 0 || ns == price_of(other) || other == 1);
    }
    return NULL;
}

static void test_more_than_it_holds(void) {
    dv_share *share = tenant_open(&tenant);
    pthread_t threads[THREADS];
    unsigned known = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK_EQUAL(pthread_create(&threads[i], NULL, crowd, share), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t ns = dv_time_learned(share, 0, key_of(i));
        CHECK(ns == 0 || ns == price_of(i));
        known += ns != 0;
    }
    CHECK(known > DV_PAGE_COSTS / 2);
    /* The newest is always found. */
    dv_time_learn(share, 0, key_of(KEYS), 77);
    CHECK_EQUAL(dv_time_learned(share, 0, key_of(KEYS)), 77);
}

static void test_nonsense(void) {
    dv_share *share = tenant_open(&tenant);
    unsigned seed = 1;
    unsigned char *bytes = (unsigned char *)share->gpu[0].cost;
    for (size_t i = 0; i < sizeof share->gpu[0].cost; i++) {
        bytes[i] = (unsigned char)rand_r(&seed);
    }
    for (uint64_t i = 0; i < KEYS; i++) {
        CHECK(dv_time_learned(share, 0, key_of(i)) <= DV_TIME_DEBT_NS);
        dv_time_learn(share, 0, key_of(i), 9);
        CHECK_EQUAL(dv_time_learned(share, 0, key_of(i)), 9);
    }
    share->gpu[0].cost[5] = (dv_page_cost){.key = 5, .value = UINT64_MAX >> DV_PAGE_COST_TAG_BITS};
    CHECK_EQUAL(dv_time_learned(share, 0, 5), 0); /* more than an hour */
}

int main(void) {
    tenant_make(&tenant, 2, MIB);
    test_outlives_its_process();
    test_bounds();
    test_more_than_it_holds();
    test_nonsense();
    tenant_remove(&tenant);
    return 0;
}
