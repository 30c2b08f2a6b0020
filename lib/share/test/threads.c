/* Threads of one process, which share its slot, beside a neighbour that does the same. */
#include "share/test/tenant.h"

#include <pthread.h>
#include <stdlib.h>

#define LIMIT (32 * MIB)
#define THREADS 4u
#define ROUNDS 100000u

static struct tenant tenant;
static dv_share *share;

static void *work(void *arg) {
    unsigned seed = *(unsigned *)arg, device = seed % 2;
    uint8_t key[DV_PAGE_EXPORT_KEY_BYTES] = {(uint8_t)seed};
    uint64_t held = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t bytes = 512ull << (unsigned)rand_r(&seed) % 14;
        if (held < LIMIT / 8 && dv_reserve(share, device, bytes) == DV_OK) {
            dv_settle(share, device, bytes, bytes / 2);
            held += (bytes / 2 + DV_PAGE_UNIT - 1) / DV_PAGE_UNIT * DV_PAGE_UNIT;
        } else {
            dv_release(share, device, held);
            held = 0;
        }
        if (i % 256 == 0 && held >= DV_PAGE_UNIT) {
            CHECK_EQUAL(dv_export_publish(share, device, key, DV_PAGE_UNIT), DV_OK);
            CHECK_EQUAL(dv_export_drop(share, key), DV_OK);
            held -= DV_PAGE_UNIT;
        }
        if (i % 16 == 0) {
            dv_usage_t usage;
            CHECK(dv_usage(share, device, &usage));
            CHECK(usage.used + usage.pending <= LIMIT);
        }
    }
    dv_release(share, device, held);
    return NULL;
}

static void run_threads(void *arg) {
    unsigned first = *(unsigned *)arg, seeds[THREADS];
    pthread_t threads[THREADS];
    share = tenant_open(&tenant);
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = first + i;
        CHECK(pthread_create(&threads[i], NULL, work, &seeds[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

int main(void) {
    unsigned here = 1, there = 101;
    tenant_make(&tenant, 2, LIMIT);
    pid_t child = spawn(run_threads, &there);
    run_threads(&here);
    wait_exited(child);
    dv_reap(share);
    for (unsigned device = 0; device < 2; device++) {
        CHECK_EQUAL(used_bytes(share, device), 0);
        CHECK_EQUAL(pending_bytes(share, device), 0);
    }
    check_sums(share);
    return 0;
}
