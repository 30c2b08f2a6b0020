/* Exported memory that descriptors keep: charged until the last is closed, whoever lives. */
#define _GNU_SOURCE
#include "share/test/tenant.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct tenant tenant;

static void charge(dv_share *share, uint64_t bytes) {
    CHECK_EQUAL(dv_reserve(share, 0, bytes), DV_OK);
    dv_settle(share, 0, bytes, bytes);
}

/* Publishes so many bytes under a new mark, with a descriptor of the file. */
static int export(dv_share *share, uint8_t key[DV_PAGE_EXPORT_KEY_BYTES], uint64_t bytes, int fd) {
    charge(share, bytes);
    dv_mark_key(dv_mark_new(), key);
    CHECK_EQUAL(dv_export_publish(share, 0, key, bytes), DV_OK);
    CHECK_EQUAL(dv_export_carry(share, key, fd), DV_OK);
    return fd;
}

static int open_null(void) {
    return open("/dev/null", O_RDWR | O_CLOEXEC);
}

static void descriptor_keeps_the_charge(void) {
    uint8_t key[DV_PAGE_EXPORT_KEY_BYTES], other[DV_PAGE_EXPORT_KEY_BYTES];
    tenant_make(&tenant, 1, 16 * MIB);
    dv_share *share = tenant_open(&tenant);
    int fd = export(share, key, MIB, open_null()),
        second = export(share, other, 2 * MIB, open_null());
    CHECK_EQUAL(dv_export_drop(share, key), DV_OK);
    CHECK_EQUAL(dv_export_drop(share, other), DV_OK);
    CHECK_EQUAL(dv_export_settle(share), 0);
    CHECK_EQUAL(used_bytes(share, 0), 3 * MIB);
    close(fd);
    CHECK_EQUAL(dv_export_settle(share), MIB);
    CHECK_EQUAL(dv_export_settle(share), 0);
    CHECK_EQUAL(dv_export_hold(share, key), DV_NO_EXPORT);
    CHECK_EQUAL(dv_export_hold(share, other), DV_OK); /* imported again */
    close(second);
    CHECK_EQUAL(dv_export_settle(share), 0);
    CHECK_EQUAL(dv_export_drop(share, other), DV_OK); /* nothing keeps it: no look is needed */
    CHECK_EQUAL(used_bytes(share, 0), 0);
    check_sums(share);
    tenant_remove(&tenant);
}

/* With marks in several files, and with one that bears none. */
static void files_may_differ(void) {
    uint8_t key[DV_PAGE_EXPORT_KEY_BYTES], stuck[DV_PAGE_EXPORT_KEY_BYTES];
    tenant_make(&tenant, 1, 16 * MIB);
    dv_share *share = tenant_open(&tenant);
    int first = export(share, key, MIB, open_null()), second = eventfd(0, EFD_CLOEXEC);
    CHECK_EQUAL(dv_export_carry(share, key, second), DV_OK);
    CHECK_EQUAL(dv_export_drop(share, key), DV_OK);
    close(first);
    CHECK_EQUAL(dv_export_settle(share), 0);
    close(second);
    CHECK_EQUAL(dv_export_settle(share), MIB);
    close(export(share, stuck, MIB, open("/dev/null", O_WRONLY | O_CLOEXEC)));
    CHECK_EQUAL(dv_export_drop(share, stuck), DV_OK);
    CHECK_EQUAL(dv_export_settle(share), 0);
    CHECK_EQUAL(used_bytes(share, 0), MIB); /* until the share ends: nobody can tell */
    check_sums(share);
    tenant_remove(&tenant);
}

static int passed;

static void export_and_die(void *arg) {
    uint8_t key[DV_PAGE_EXPORT_KEY_BYTES];
    (void)arg;
    dv_share *share = tenant_open(&tenant);
    charge(share, MIB);
    export(share, key, 2 * MIB, passed);
    close(export(share, key, 4 * MIB, open_null()));
    raise(SIGKILL);
}

/* What the dead process held goes; what a descriptor elsewhere keeps stays. */
static void descriptor_outlives_its_maker(void) {
    tenant_make(&tenant, 1, 16 * MIB);
    dv_share *share = tenant_open(&tenant);
    passed = open_null();
    wait_killed(spawn(export_and_die, NULL));
    CHECK_EQUAL(dv_reap(share), 1);
    CHECK_EQUAL(used_bytes(share, 0), 6 * MIB);
    CHECK_EQUAL(dv_export_settle(share), 4 * MIB);
    CHECK_EQUAL(used_bytes(share, 0), 2 * MIB);
    close(passed);
    CHECK_EQUAL(dv_export_settle(share), 2 * MIB);
    check_sums(share);
    tenant_remove(&tenant);
}

/* Holds are counted, and imports of others' memory grow with what is mapped. */
static void imports_are_charged_once(void) {
    uint8_t key[DV_PAGE_EXPORT_KEY_BYTES];
    tenant_make(&tenant, 1, 16 * MIB);
    dv_share *share = tenant_open(&tenant);
    dv_mark_key(dv_mark_new(), key);
    CHECK_EQUAL(dv_export_join(share, 7, key), DV_NO_DEVICE);
    CHECK_EQUAL(dv_export_join(share, 0, key), DV_OK);
    CHECK_EQUAL(dv_export_join(share, 0, key), DV_OK);
    CHECK_EQUAL(used_bytes(share, 0), 0);
    CHECK_EQUAL(dv_export_lacks(share, key, 2 * MIB), 2 * MIB);
    charge(share, 2 * MIB);
    dv_export_grow(share, 0, key, 2 * MIB, 2 * MIB);
    CHECK_EQUAL(dv_export_lacks(share, key, MIB), 0);
    CHECK_EQUAL(dv_export_lacks(share, key, 3 * MIB), MIB);
    charge(share, 2 * MIB); /* another thread was faster with one of them */
    dv_export_grow(share, 0, key, 3 * MIB, 2 * MIB);
    CHECK_EQUAL(used_bytes(share, 0), 3 * MIB);
    check_sums(share);
    CHECK_EQUAL(dv_export_drop(share, key), DV_OK);
    CHECK_EQUAL(used_bytes(share, 0), 3 * MIB);
    CHECK_EQUAL(dv_export_drop(share, key), DV_OK);
    CHECK_EQUAL(used_bytes(share, 0), 0);
    CHECK_EQUAL(dv_export_drop(share, key), DV_NO_EXPORT);
    check_sums(share);
    tenant_remove(&tenant);
}

int main(void) {
    descriptor_keeps_the_charge();
    files_may_differ();
    descriptor_outlives_its_maker();
    imports_are_charged_once();
    return 0;
}
