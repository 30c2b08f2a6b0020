/* Exported memory: whose charge it is while processes come and go. */
#include "share/test/tenant.h"

#include <signal.h>
#include <string.h>

static struct tenant tenant;
static const uint8_t key[DV_PAGE_EXPORT_KEY_BYTES] = "one";
static const uint8_t other_key[DV_PAGE_EXPORT_KEY_BYTES] = "two";

static void charge(dv_share *share, unsigned device, uint64_t bytes) {
    CHECK_EQUAL(dv_reserve(share, device, bytes), DV_OK);
    dv_settle(share, device, bytes, bytes);
}

static void charge_stays_while_held(void) {
    tenant_make(&tenant, 2, 8 * MIB);
    dv_share *share = tenant_open(&tenant);
    charge(share, 1, 4 * MIB);
    CHECK_EQUAL(dv_export_publish(share, 1, key, 3 * MIB), DV_OK);
    CHECK_EQUAL(dv_export_publish(share, 1, key, 3 * MIB), DV_OK);
    CHECK_EQUAL(used_bytes(share, 1), 4 * MIB);
    dv_release(share, 1, 4 * MIB); /* no more than the process still has */
    CHECK_EQUAL(used_bytes(share, 1), 3 * MIB);
    check_sums(share);
    CHECK_EQUAL(dv_export_drop(share, key), DV_OK);
    CHECK_EQUAL(used_bytes(share, 1), 0);
    CHECK_EQUAL(dv_export_drop(share, key), DV_NO_EXPORT);
    CHECK_EQUAL(dv_export_hold(share, key), DV_NO_EXPORT);
    check_sums(share);
    tenant_remove(&tenant);
}

static void publish_and_die(void *arg) {
    (void)arg;
    dv_share *share = tenant_open(&tenant);
    charge(share, 0, 5 * MIB);
    CHECK_EQUAL(dv_export_publish(share, 0, other_key, 2 * MIB), DV_OK);
    CHECK_EQUAL(dv_export_publish(share, 0, key, 3 * MIB), DV_CORRUPT); /* it is the other's */
    CHECK_EQUAL(dv_export_hold(share, key), DV_OK);
    raise(SIGSTOP);
    raise(SIGKILL);
}

/* Ours is held by the child and the child's by us, then the child dies. */
static void holders_survive_the_exporter(void) {
    tenant_make(&tenant, 1, 16 * MIB);
    dv_share *share = tenant_open(&tenant);
    charge(share, 0, 3 * MIB);
    CHECK_EQUAL(dv_export_publish(share, 0, key, 3 * MIB), DV_OK);
    pid_t child = spawn(publish_and_die, NULL);
    wait_stopped(child);
    CHECK_EQUAL(dv_export_hold(share, other_key), DV_OK);
    CHECK_EQUAL(dv_export_drop(share, key), DV_OK);
    CHECK_EQUAL(used_bytes(share, 0), 8 * MIB);
    CHECK(kill(child, SIGCONT) == 0);
    wait_killed(child);
    CHECK_EQUAL(dv_reap(share), 1);
    CHECK_EQUAL(used_bytes(share, 0), 2 * MIB); /* other_key; key lost its last holder */
    CHECK_EQUAL(dv_export_drop(share, key), DV_NO_EXPORT);
    CHECK_EQUAL(dv_export_drop(share, other_key), DV_OK);
    CHECK_EQUAL(used_bytes(share, 0), 0);
    check_sums(share);
    tenant_remove(&tenant);
}

static void a_full_table_keeps_the_charge(void) {
    tenant_make(&tenant, 1, 16 * MIB);
    dv_share *share = tenant_open(&tenant);
    charge(share, 0, MIB);
    uint8_t name[DV_PAGE_EXPORT_KEY_BYTES] = {0};
    for (unsigned i = 0; i < DV_PAGE_EXPORTS; i++) {
        memcpy(name, &i, sizeof i);
        CHECK_EQUAL(dv_export_publish(share, 0, name, 512), DV_OK);
    }
    CHECK_EQUAL(dv_export_publish(share, 0, key, 512), DV_NO_SLOT);
    CHECK_EQUAL(used_bytes(share, 0), MIB);
    check_sums(share);
    unsigned last = DV_PAGE_EXPORTS - 1;
    memcpy(name, &last, sizeof last);
    CHECK_EQUAL(dv_export_drop(share, name), DV_OK);
    CHECK_EQUAL(dv_export_publish(share, 0, key, 512), DV_OK);
    CHECK_EQUAL(dv_export_publish(share, 1, key, 512), DV_NO_DEVICE);
    check_sums(share);
    tenant_remove(&tenant);
}

/* A lock that names nobody who lives is nobody's. */
static void a_stale_lock_is_taken_over(void) {
    tenant_make(&tenant, 1, 16 * MIB);
    dv_share *share = tenant_open(&tenant);
    charge(share, 0, MIB);
    share->state->export_lock = 55;
    CHECK_EQUAL(dv_export_publish(share, 0, key, MIB), DV_OK);
    share->state->export_lock = UINT32_MAX;
    CHECK_EQUAL(dv_export_drop(share, key), DV_OK);
    CHECK_EQUAL(used_bytes(share, 0), 0);
    tenant_remove(&tenant);
}

int main(void) {
    charge_stays_while_held();
    holders_survive_the_exporter();
    a_full_table_keeps_the_charge();
    a_stale_lock_is_taken_over();
    return 0;
}
