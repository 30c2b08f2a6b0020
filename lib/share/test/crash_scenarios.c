#include "share/test/crash.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint8_t shared_key[DV_PAGE_EXPORT_KEY_BYTES] = "held by both";
static const uint8_t own_key[DV_PAGE_EXPORT_KEY_BYTES] = "held by the dead";

static void charge(dv_share *share, uint64_t bytes) {
    CHECK(dv_reserve(share, 0, bytes) == DV_OK);
    dv_settle(share, 0, bytes, bytes);
}

static void charge_some(dv_share *share) {
    charge(share, 4 * MIB);
    dv_overhead(share, 0, MIB);
}

static void reserve(dv_share *share) {
    CHECK(dv_reserve(share, 0, 2 * MIB) == DV_OK);
}

static void settle_less(dv_share *share) {
    dv_settle(share, 0, 2 * MIB, MIB);
}

static void prepare_settle(dv_share *share) {
    charge_some(share);
    reserve(share);
}

static void settle_more(dv_share *share) {
    dv_settle(share, 0, 2 * MIB, 3 * MIB);
}

static void release(dv_share *share) {
    dv_release(share, 0, 2 * MIB);
}

static void retire_and_free(dv_share *share) {
    dv_retire(share, 0, 2 * MIB);
    dv_settle(share, 0, 2 * MIB, 0);
}

static void grow_overhead(dv_share *share) {
    dv_overhead(share, 0, 3 * MIB);
}

static void be_refused(dv_share *share) {
    CHECK(dv_reserve(share, 0, CRASH_LIMIT) == DV_NO_MEMORY);
    dv_refused(share, 0, CRASH_LIMIT, false);
}

static void several(dv_share *share) {
    reserve(share);
    settle_less(share);
    dv_overhead(share, 0, 0);
    release(share);
    charge(share, 512);
}

/* As another thread would: by the gate and the slot's second lane. */
static dv_share *other_thread;

static void prepare_other_thread(dv_share *share) {
    charge_some(share);
    other_thread = tenant_open_again(share);
    charge(other_thread, 512);
    CHECK_EQUAL(own_slot(other_thread), own_slot(share));
}

static void by_turns(dv_share *share) {
    charge(other_thread, 512);
    charge(share, 512);
    dv_release(other_thread, 0, MIB);
    dv_release(share, 0, MIB);
}

static void publish(dv_share *share) {
    CHECK(dv_export_publish(share, 0, own_key, 2 * MIB) == DV_OK);
}

static void prepare_published(dv_share *share) {
    charge_some(share);
    publish(share);
}

static void drop(dv_share *share) {
    CHECK(dv_export_drop(share, own_key) == DV_OK);
}

static void hold_own(dv_share *share) {
    CHECK(dv_export_hold(share, own_key) == DV_OK);
}

static void neighbour_drops_own(dv_share *share) {
    CHECK(dv_export_drop(share, own_key) == DV_OK);
    CHECK_EQUAL(used_bytes(share, 0), CRASH_NEIGHBOUR);
}

static void neighbour_publishes(const struct tenant *tenant, dv_share *share) {
    (void)tenant;
    charge(share, 2 * MIB);
    CHECK(dv_export_publish(share, 0, shared_key, 2 * MIB) == DV_OK);
}

static void hold_shared(dv_share *share) {
    CHECK(dv_export_hold(share, shared_key) == DV_OK);
}

static void drop_shared(dv_share *share) {
    CHECK(dv_export_drop(share, shared_key) == DV_OK);
}

/* A process that dies with something of each kind: charged, pending, overhead, exports of which one
 * has no other holder. */
static void die_full(void *arg) {
    dv_share *share = tenant_open(arg);
    charge(share, 6 * MIB);
    dv_overhead(share, 0, MIB);
    reserve(share);
    publish(share);
    CHECK(dv_export_hold(share, shared_key) == DV_OK);
    raise(SIGKILL);
}

static void neighbour_of_dead(const struct tenant *tenant, dv_share *share) {
    neighbour_publishes(tenant, share);
    wait_killed(spawn(die_full, (void *)(uintptr_t)tenant));
}

static void reap(dv_share *share) {
    CHECK_EQUAL(dv_reap(share), 1);
}

/* Does not fit beside the dead process's balance, so it is reaped on the way. */
static void reserve_by_reaping(dv_share *share) {
    CHECK(dv_reserve(share, 0, CRASH_LIMIT - CRASH_NEIGHBOUR - 4 * MIB) == DV_OK);
}

/* The first reservation takes the slot in which the process died. */
static void take_dead_slot(dv_share *share) {
    reserve(share);
}

/* Exiting while the table of exports is locked is what a stopped stepping does to `publish`; here
 * the next one finds the lock in the dead process's name. */
static void die_with_lock(void *arg) {
    dv_share *share = tenant_open(arg);
    charge(share, 2 * MIB);
    CHECK(lock_exports(share, (unsigned)own_slot(share), false));
    raise(SIGKILL);
}

static void neighbour_of_locker(const struct tenant *tenant, dv_share *share) {
    (void)share;
    wait_killed(spawn(die_with_lock, (void *)(uintptr_t)tenant));
}

static void prepare_joined(dv_share *share) {
    charge_some(share);
    CHECK(dv_export_join(share, 0, own_key) == DV_OK);
}

static void grow(dv_share *share) {
    charge(share, 2 * MIB);
    dv_export_grow(share, 0, own_key, MIB, 2 * MIB);
}

/* The page itself serves as the file of descriptors. */
static int descriptor;

static void prepare_carry(dv_share *share) {
    prepare_published(share);
    descriptor = open(share->path, O_RDWR | O_CLOEXEC);
    mark_learn(share->mark_file, descriptor);
}

static void carry(dv_share *share) {
    CHECK(dv_export_carry(share, own_key, descriptor) == DV_OK);
}

/* Memory that nothing keeps any more, which nobody has noticed yet. */
static void neighbour_closes(const struct tenant *tenant, dv_share *share) {
    neighbour_publishes(tenant, share);
    int fd = open(share->path, O_RDWR | O_CLOEXEC);
    CHECK(dv_export_carry(share, shared_key, fd) == DV_OK);
    CHECK(dv_export_drop(share, shared_key) == DV_OK);
    CHECK_EQUAL(used_bytes(share, 0), CRASH_NEIGHBOUR + 2 * MIB);
    close(fd);
}

static void prepare_settle_exports(dv_share *share) {
    charge_some(share);
    int fd = open(share->path, O_RDWR | O_CLOEXEC);
    mark_learn(share->mark_file, fd);
    close(fd);
}

static void settle_exports(dv_share *share) {
    CHECK_EQUAL(dv_export_settle(share), 2 * MIB);
}

#define ALONE .left = CRASH_NEIGHBOUR
#define BESIDE .left = CRASH_NEIGHBOUR + 2 * MIB

const struct scenario scenarios[] = {
    {.name = "take a slot", .act = reserve, ALONE},
    {.name = "reserve", .prepare = charge_some, .act = reserve, ALONE},
    {.name = "refusal", .prepare = charge_some, .act = be_refused, ALONE},
    {.name = "settle less", .prepare = prepare_settle, .act = settle_less, ALONE},
    {.name = "settle more", .prepare = prepare_settle, .act = settle_more, ALONE},
    {.name = "release", .prepare = charge_some, .act = release, ALONE},
    {.name = "free", .prepare = charge_some, .act = retire_and_free, ALONE},
    {.name = "overhead", .prepare = charge_some, .act = grow_overhead, ALONE},
    {.name = "several", .prepare = charge_some, .act = several, ALONE},
    {.name = "two threads", .prepare = prepare_other_thread, .act = by_turns, ALONE},
    {.name = "publish", .prepare = charge_some, .act = publish, ALONE},
    {.name = "drop last", .prepare = prepare_published, .act = drop, ALONE},
    {.name = "drop beside",
     .prepare = prepare_published,
     .meanwhile = hold_own,
     .act = drop,
     BESIDE,
     .restore = neighbour_drops_own},
    {.name = "hold",
     .neighbour = neighbour_publishes,
     .prepare = charge_some,
     .act = hold_shared,
     BESIDE,
     .restore = drop_shared},
    {.name = "grow", .prepare = prepare_joined, .act = grow, ALONE},
    {.name = "carry", .prepare = prepare_carry, .act = carry, ALONE},
    {.name = "settle exports",
     .neighbour = neighbour_closes,
     .prepare = prepare_settle_exports,
     .act = settle_exports,
     ALONE},
    {.name = "reap", .neighbour = neighbour_of_dead, .act = reap, BESIDE, .restore = drop_shared},
    {.name = "reserve by reaping",
     .neighbour = neighbour_of_dead,
     .prepare = NULL,
     .act = reserve_by_reaping,
     BESIDE,
     .restore = drop_shared},
    {.name = "take a dead slot",
     .neighbour = neighbour_of_dead,
     .act = take_dead_slot,
     BESIDE,
     .restore = drop_shared},
    {.name = "inherit the lock",
     .neighbour = neighbour_of_locker,
     .prepare = charge_some,
     .act = publish,
     ALONE},
};

const size_t scenario_count = sizeof scenarios / sizeof scenarios[0];
