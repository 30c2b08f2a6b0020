/* The last GPU and the last slot that the description allows work like the first, whatever numbers
 * it gives. */
#define _GNU_SOURCE /* F_OFD_SETLK */
#include "share/pulse.h"
#include "share/test/tenant.h"
#include "share/time.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define LAST_SLOT (DV_PAGE_SLOTS - 1)
#define AMOUNT ((uint64_t)DV_PAGE_UNIT)

static struct tenant tenant;
static const uint8_t key[DV_PAGE_EXPORT_KEY_BYTES] = "one";

static bool sees_all_charges(const dv_process *process, void *arg) {
    unsigned *seen = arg;
    for (unsigned device = 0; device < DV_PAGE_DEVICES; device++) {
        CHECK_EQUAL(process->used[device], (device + 1) * AMOUNT);
    }
    (*seen)++;
    return true;
}

static void works_on_every_gpu(void) {
    tenant_make(&tenant, DV_PAGE_DEVICES, 2 * DV_PAGE_DEVICES * AMOUNT);
    dv_share *share = tenant_open(&tenant);
    uint64_t now = os_now_ns();
    unsigned seen = 0;
    CHECK_EQUAL(dv_share_device_count(share), DV_PAGE_DEVICES);
    for (unsigned device = 0; device < DV_PAGE_DEVICES; device++) {
        uint64_t bytes = (device + 1) * AMOUNT;
        CHECK_EQUAL(dv_share_device(share, device)->uuid[0], device + 1);
        CHECK_EQUAL(dv_reserve(share, device, bytes), DV_OK);
        dv_settle(share, device, bytes, bytes);
        CHECK_EQUAL(dv_time_worker(share, device), 0);
        dv_pulse_until(share, device, now, now + 1);
        CHECK_EQUAL(dv_pulse_beating(share, device, now), 0);
    }
    dv_processes(share, sees_all_charges, &seen);
    CHECK_EQUAL(seen, 1);
    check_sums(share);
    dv_share_forked(share);
    CHECK_EQUAL(share->slot, SLOT_NONE);
    tenant_remove(&tenant);
}

/* Makes every slot but the last look like that of a living process. */
static int occupy_the_others(dv_share *share) {
    int file = open(tenant_path(&tenant, "state"), O_RDWR | O_CLOEXEC);
    struct flock lock = {
        .l_type = F_WRLCK, .l_start = (off_t)DV_PAGE_LOCK_BASE, .l_len = (off_t)LAST_SLOT};
    CHECK(file >= 0 && fcntl(file, F_OFD_SETLK, &lock) == 0);
    for (unsigned slot = 0; slot < LAST_SLOT; slot++) {
        share->state->slot[slot].generation = 1;
        share->state->slot[slot].pid = 1;
    }
    share->state->slot_count = LAST_SLOT;
    return file;
}

static void work_in_the_last_slot(void *arg) {
    (void)arg;
    dv_share *share = tenant_open(&tenant);
    CHECK_EQUAL(dv_reserve(share, 0, 3 * AMOUNT), DV_OK);
    dv_settle(share, 0, 3 * AMOUNT, 3 * AMOUNT);
    CHECK_EQUAL(own_slot(share), LAST_SLOT);
    CHECK_EQUAL(dv_export_publish(share, 0, key, AMOUNT), DV_OK);
    CHECK_EQUAL(dv_time_worker(share, 0), 0);
    raise(SIGSTOP);
    raise(SIGKILL);
}

static void works_in_the_last_slot(void) {
    tenant_make(&tenant, 1, 8 * AMOUNT);
    dv_share *share = tenant_open(&tenant);
    int file = occupy_the_others(share);
    pid_t child = spawn(work_in_the_last_slot, NULL);
    wait_stopped(child);
    uint64_t holders[DV_PAGE_HOLDER_WORDS] = {0};
    holders[LAST_SLOT / 64] = UINT64_C(1) << LAST_SLOT % 64;
    CHECK(memcmp(share->state->export[0].holders, holders, sizeof holders) == 0);
    CHECK_EQUAL(share->gpu->worker[0].owner & ((1u << DV_PAGE_OWNER_BITS) - 1), DV_PAGE_SLOTS);
    CHECK_EQUAL(dv_reserve(share, 0, AMOUNT), DV_NO_SLOT);
    check_sums(share);
    CHECK(kill(child, SIGCONT) == 0);
    wait_killed(child);
    CHECK_EQUAL(dv_reap(share), 1);
    CHECK_EQUAL(used_bytes(share, 0), 0);
    CHECK_EQUAL(dv_reserve(share, 0, AMOUNT), DV_OK);
    CHECK_EQUAL(own_slot(share), LAST_SLOT);
    CHECK(close(file) == 0);
    tenant_remove(&tenant);
}

int main(void) {
    works_on_every_gpu();
    works_in_the_last_slot();
    return 0;
}
