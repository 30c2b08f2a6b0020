/* Charging: amounts, limits, waiting and reaping, between few processes. */
#include "share/test/tenant.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct tenant tenant;

static void charge(dv_share *share, uint64_t bytes) {
    CHECK_EQUAL(dv_reserve(share, 0, bytes), DV_OK);
    dv_settle(share, 0, bytes, bytes);
}

static void counts_amounts(void) {
    tenant_make(&tenant, 2, 8 * MIB);
    dv_share *share = tenant_open(&tenant);
    CHECK_EQUAL(dv_reserve(share, 1, 3 * MIB), DV_OK);
    CHECK_EQUAL(pending_bytes(share, 1), 3 * MIB);
    CHECK_EQUAL(used_bytes(share, 1), 0);
    dv_settle(share, 1, 3 * MIB, 2 * MIB);
    CHECK_EQUAL(pending_bytes(share, 1), 0);
    CHECK_EQUAL(used_bytes(share, 1), 2 * MIB);
    CHECK_EQUAL(used_bytes(share, 0), 0);
    dv_overhead(share, 1, MIB);
    dv_overhead(share, 1, 2 * MIB);
    CHECK_EQUAL(used_bytes(share, 1), 4 * MIB);
    dv_usage_t usage;
    CHECK(dv_usage(share, 1, &usage));
    CHECK_EQUAL(usage.overhead, 2 * MIB);
    dv_overhead(share, 1, 0);
    dv_release(share, 1, MIB);
    CHECK_EQUAL(used_bytes(share, 1), MIB);
    CHECK_EQUAL(share->gpu[1].peak, 4 * MIB / 512); /* with overhead, without what was pending */
    check_sums(share);
    tenant_remove(&tenant);
}

static void rounds_up(void) {
    tenant_make(&tenant, 1, 8 * MIB);
    dv_share *share = tenant_open(&tenant);
    CHECK_EQUAL(dv_reserve(share, 0, 0), DV_OK);
    CHECK_EQUAL(share->slot, SLOT_NONE); /* nothing asked for, no slot taken */
    charge(share, 1);
    CHECK_EQUAL(used_bytes(share, 0), 512);
    charge(share, 513);
    CHECK_EQUAL(used_bytes(share, 0), 3 * 512);
    dv_release(share, 0, 513);
    dv_release(share, 0, 1);
    CHECK_EQUAL(used_bytes(share, 0), 0);
    tenant_remove(&tenant);
}

static void holds_the_limit(void) {
    tenant_make(&tenant, 1, 8 * MIB);
    dv_share *share = tenant_open(&tenant);
    CHECK_EQUAL(dv_reserve(share, 0, 8 * MIB + 1), DV_NO_MEMORY);
    CHECK_EQUAL(dv_reserve(share, 0, UINT64_MAX), DV_NO_MEMORY);
    charge(share, 8 * MIB);
    CHECK_EQUAL(dv_reserve(share, 0, 1), DV_NO_MEMORY);
    dv_release(share, 0, 512);
    charge(share, 512);
    /* What is found out only afterwards counts even past the limit, and refuses what follows. */
    dv_release(share, 0, 4 * MIB);
    CHECK_EQUAL(dv_reserve(share, 0, MIB), DV_OK);
    dv_settle(share, 0, MIB, 6 * MIB);
    CHECK_EQUAL(used_bytes(share, 0), 10 * MIB);
    CHECK_EQUAL(dv_reserve(share, 0, 512), DV_NO_MEMORY);
    dv_release(share, 0, 6 * MIB);
    dv_overhead(share, 0, 7 * MIB);
    CHECK_EQUAL(dv_reserve(share, 0, 512), DV_NO_MEMORY);
    check_sums(share);
    tenant_remove(&tenant);
}

/* Refusals are counted where they are told, each with its bytes and who refused. */
static void counts_what_was_refused(void) {
    tenant_make(&tenant, 2, 8 * MIB);
    dv_share *share = tenant_open(&tenant);
    const dv_page_gpu *gpu = &share->gpu[1];
    CHECK_EQUAL(dv_reserve(share, 1, 9 * MIB), DV_NO_MEMORY);
    CHECK_EQUAL(gpu->refused, 0); /* the caller may try again with less */
    dv_refused(share, 1, 9 * MIB, false);
    dv_refused(share, 1, 3 * MIB, true);
    dv_refused(share, 1, 2 * MIB, false);
    dv_refused(share, 2, MIB, false); /* no such device */
    CHECK_EQUAL(gpu->refused, 2);
    CHECK_EQUAL(gpu->refused_by_gpu, 1);
    CHECK_EQUAL(gpu->refused_largest, 9 * MIB);
    CHECK_EQUAL(gpu->refused_last, 2 * MIB);
    CHECK_EQUAL(gpu->refuser, DV_PAGE_REFUSER_LIMIT);
    CHECK(gpu->refused_at > 0 && gpu->refused_at <= os_now_ns());
    CHECK_EQUAL(share->gpu[0].refused + share->gpu[0].refused_by_gpu, 0);
    tenant_remove(&tenant);
}

/* Errors of the caller end at the caller's own balance. */
static void gives_back_no_more_than_it_has(void) {
    tenant_make(&tenant, 1, 8 * MIB);
    dv_share *share = tenant_open(&tenant), *other = tenant_open(&tenant);
    dv_release(share, 0, MIB); /* no slot, nothing charged */
    charge(share, 2 * MIB);
    dv_release(share, 0, UINT64_MAX);
    CHECK_EQUAL(used_bytes(share, 0), 0);
    dv_settle(share, 0, UINT64_MAX, 0);
    CHECK_EQUAL(pending_bytes(share, 0), 0);
    charge(share, MIB);
    dv_settle(other, 0, 3 * MIB, 0);
    CHECK_EQUAL(used_bytes(share, 0), MIB);
    check_sums(share);
    tenant_remove(&tenant);
}

static void retires_before_it_frees(void) {
    tenant_make(&tenant, 1, 8 * MIB);
    dv_share *share = tenant_open(&tenant);
    dv_own_t own;
    dv_retire(share, 0, MIB); /* no slot, nothing charged */
    CHECK(dv_own(share, 0, &own) && own.charged == 0 && !dv_own(share, 1, &own));
    charge(share, 4 * MIB);
    dv_overhead(share, 0, MIB);
    dv_retire(share, 0, 3 * MIB);
    CHECK(dv_own(share, 0, &own));
    CHECK_EQUAL(own.charged, MIB);
    CHECK_EQUAL(own.pending, 3 * MIB);
    CHECK_EQUAL(own.overhead, MIB);
    CHECK_EQUAL(used_bytes(share, 0), 2 * MIB);
    dv_settle(share, 0, 3 * MIB, 3 * MIB); /* the driver refused to free it */
    CHECK_EQUAL(used_bytes(share, 0), 5 * MIB);
    dv_retire(share, 0, 7 * MIB);
    CHECK_EQUAL(pending_bytes(share, 0), 4 * MIB);
    dv_settle(share, 0, 7 * MIB, 0);
    CHECK_EQUAL(pending_bytes(share, 0), 0);
    CHECK_EQUAL(used_bytes(share, 0), MIB);
    check_sums(share);
    tenant_remove(&tenant);
}

/* A neighbour that is inside a driver call until told to go on. */
struct neighbour {
    uint32_t go; /* futex */
    uint64_t charged;
};

static void reserve_and_settle(void *arg) {
    struct neighbour *neighbour = arg;
    dv_share *share = tenant_open(&tenant);
    CHECK_EQUAL(dv_reserve(share, 0, 6 * MIB), DV_OK);
    store32(&neighbour->go, 1);
    while (load32(&share->gpu->waiting) == 0) {
        os_futex_wait(&neighbour->go, 1, 1000000);
    }
    dv_settle(share, 0, 6 * MIB, neighbour->charged);
    while (load32(&neighbour->go) == 1) {
        os_futex_wait(&neighbour->go, 1, 1000000);
    }
}

static void await(const uint32_t *word, uint32_t value) {
    while (load32(word) != value) {
        os_futex_wait(word, load32(word), 1000000);
    }
}

static void waits_for_a_driver_call(uint64_t charged, dv_status expected) {
    tenant_make(&tenant, 1, 8 * MIB);
    struct neighbour *neighbour =
        mmap(NULL, sizeof *neighbour, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(neighbour != MAP_FAILED);
    neighbour->charged = charged;
    dv_share *share = tenant_open(&tenant);
    pid_t child = spawn(reserve_and_settle, neighbour);
    await(&neighbour->go, 1);
    CHECK_EQUAL(dv_reserve(share, 0, 4 * MIB), expected);
    if (expected == DV_OK) {
        dv_settle(share, 0, 4 * MIB, 0);
    }
    CHECK_EQUAL(load64(&share->gpu->turn), 0);
    store32(&neighbour->go, 2);
    wait_exited(child);
    tenant_remove(&tenant);
}

static void die_charged(void *arg) {
    dv_share *share = tenant_open(&tenant);
    charge(share, 5 * MIB);
    dv_overhead(share, 0, MIB);
    CHECK_EQUAL(dv_reserve(share, 0, MIB), DV_OK);
    (void)arg;
    raise(SIGKILL);
}

static void reaps_before_it_refuses(void) {
    tenant_make(&tenant, 1, 8 * MIB);
    dv_share *share = tenant_open(&tenant);
    wait_killed(spawn(die_charged, NULL));
    CHECK_EQUAL(used_bytes(share, 0), 6 * MIB);
    CHECK_EQUAL(pending_bytes(share, 0), MIB);
    charge(share, 8 * MIB);
    check_sums(share);
    CHECK_EQUAL(dv_reap(share), 0);
    tenant_remove(&tenant);
}

static void reaps_when_asked(void) {
    tenant_make(&tenant, 1, 8 * MIB);
    dv_share *share = tenant_open(&tenant);
    wait_killed(spawn(die_charged, NULL));
    CHECK_EQUAL(dv_reap(share), 1);
    CHECK_EQUAL(used_bytes(share, 0), 0);
    CHECK_EQUAL(pending_bytes(share, 0), 0);
    CHECK_EQUAL(dv_reap(share), 0);
    tenant_remove(&tenant);
}

/* A process that is stopped with its turn taken hinders its neighbours for no more than the
   turn. */
static void turns_end(void) {
    tenant_make(&tenant, 1, 8 * MIB);
    dv_share *share = tenant_open(&tenant);
    uint64_t far = (os_now_ns() / 1000000 + 1000) << DV_PAGE_SLOT_BITS | 77;
    store64(&share->gpu->turn, far);
    store32(&share->gpu->turn_units, UINT32_MAX);
    charge(share, MIB); /* an end that lies too far ahead counts as none */
    uint64_t near = (os_now_ns() / 1000000 + 90) << DV_PAGE_SLOT_BITS | 77;
    store64(&share->gpu->turn, near);
    charge(share, MIB); /* or it would wait for ever */
    tenant_remove(&tenant);
}

/* Ids of operations wrap; here right in the middle of a process's life. */
static void survives_the_wrap(void) {
    tenant_make(&tenant, 1, 16 * MIB);
    dv_share *share = tenant_open(&tenant), *other = tenant_open(&tenant);
    uint64_t last = ID_MASK - 3;
    for (unsigned slot = 0; slot < 2; slot++) {
        share->gpu->applied[slot] = last;
    }
    share->gpu->tag = pack_tag(0, last);
    for (int i = 0; i < 5; i++) {
        charge(share, MIB);
        charge(other, 512); /* as another thread would: by the slot's second lane */
        dv_release(other, 0, 512);
    }
    CHECK(tag_id(share->gpu->tag) < 100);
    CHECK_EQUAL(used_bytes(share, 0), 5 * MIB);
    wait_killed(spawn(die_charged, NULL));
    CHECK_EQUAL(dv_reap(share), 1);
    CHECK_EQUAL(used_bytes(share, 0), 5 * MIB);
    check_sums(share);
    tenant_remove(&tenant);
}

/* Whatever a tenant writes into its page: an answer in bounded time. */
static void answers_garbage(void) {
    for (unsigned seed = 1; seed <= 40; seed++) {
        tenant_make(&tenant, 1, 8 * MIB);
        dv_share *share = tenant_open(&tenant);
        unsigned state = seed;
        char *bytes = (char *)share->state + sizeof(dv_page_header);
        size_t size = share->state_size - sizeof(dv_page_header);
        for (size_t i = 0; i < size; i++) {
            bytes[i] = (char)rand_r(&state);
        }
        if (seed % 2 == 0) { /* believable enough to get beyond the first checks */
            memset(share->gpu->applied, 0, sizeof share->gpu->applied);
            memset(share->gpu->journal, 0, sizeof share->gpu->journal);
            share->gpu->tag = 0;
            share->gpu->amounts = 0;
            share->state->export_lock = 0;
            share->state->slot_count = 3;
        }
        uint64_t start = os_now_ns();
        dv_reserve(share, 0, MIB);
        dv_settle(share, 0, MIB, MIB);
        dv_export_publish(share, 0,
                          "0123456789012345678901234567890123456789012345678901234567890123", MIB);
        dv_reap(share);
        used_bytes(share, 0);
        CHECK(os_now_ns() - start < 20ull * DV_WAIT_NS);
        tenant_remove(&tenant);
    }
}

int main(void) {
    counts_amounts();
    rounds_up();
    holds_the_limit();
    counts_what_was_refused();
    gives_back_no_more_than_it_has();
    retires_before_it_frees();
    waits_for_a_driver_call(0, DV_OK);
    waits_for_a_driver_call(4 * MIB, DV_OK);
    waits_for_a_driver_call(5 * MIB, DV_NO_MEMORY);
    reaps_before_it_refuses();
    reaps_when_asked();
    turns_end();
    survives_the_wrap();
    answers_garbage();
    return 0;
}
