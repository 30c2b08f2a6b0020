/* Turns of memory as processes read and tell them: what closes a gate and for how long, how an amount
 * is divided, and that a slot's next process begins with nothing told. */
#include "share/residence.h"

#include <stddef.h>

#include "share/state.h"
#include "share/test/tenant.h"

#define SECOND 1000000000ull

static struct tenant tenant;

static void order(unsigned device, uint64_t word, uint64_t valid) {
    size_t at = offsetof(dv_page_config, device) + device * sizeof(dv_page_device) +
                offsetof(dv_page_device, turn);
    dv_page_turn turn = {.order = word, .give = 10, .room = 20, .valid = valid};
    tenant_write(&tenant, "config", at, &turn, sizeof turn);
}

static void test_what_closes(const dv_share *share) {
    uint64_t now = 1000 * SECOND;
    for (unsigned state = 0; state < 256; state++) {
        order(0, (uint64_t)7 << DV_PAGE_TURN_BITS | state, now + SECOND);
        bool closes = state == DV_PAGE_TURN_AWAY || state == DV_PAGE_TURN_ENTERING ||
                      state == DV_PAGE_TURN_LEAVING || state == DV_PAGE_TURN_SUSPENDED;
        CHECK_EQUAL(dv_turn_closed(share, 0, now), closes);
        CHECK_EQUAL(dv_turn_opens(dv_turn_order(share, 0)), !closes);
        CHECK_EQUAL(dv_turn_state(dv_turn_order(share, 0)), state);
    }
    order(0, DV_PAGE_TURN_AWAY, now);
    CHECK(dv_turn_closed(share, 0, now));
    CHECK(!dv_turn_closed(share, 0, now + 1));
    CHECK(!dv_turn_closed(share, 0, now - DV_TURN_AHEAD_NS - 1)); /* nobody's clock says that */
    CHECK_EQUAL(dv_turn_give(share, 0), 10);
    CHECK_EQUAL(dv_turn_room(share, 0), 20);
    /* What is not there, or is a kept part, has an open gate. */
    CHECK(!dv_turn_closed(share, 2, now));
    CHECK(!dv_turn_closed(share, DV_PAGE_DEVICES, now));
    CHECK_EQUAL(dv_turn_give(share, DV_PAGE_DEVICES), 0);
}

static void test_without_a_slot(dv_share *share) {
    dv_present_done(share, 0, 5);
    dv_present_waits(share, 0, 5);
    CHECK_EQUAL(dv_turn_part(share, 0, 100), 100);
    CHECK_EQUAL(share->gpu[0].present[0].done, 0);
}

static void charge(void *arg) {
    dv_share *share = tenant_open(&tenant);
    uint64_t units = *(const uint64_t *)arg;
    CHECK_EQUAL(dv_reserve(share, 0, units * DV_PAGE_UNIT), DV_OK);
    dv_settle(share, 0, units * DV_PAGE_UNIT, units * DV_PAGE_UNIT);
    dv_present_takes_part(share, 0, true);
    dv_present_there(share, 0, 77);
    dv_present_waits(share, 0, 78);
    dv_present_done(share, 0, 79);
}

/* A dead process has no part, and who takes its slot has told nothing. */
static void test_parts(dv_share *share) {
    uint64_t units = 3;
    wait_exited(spawn(charge, &units));
    CHECK_EQUAL(share->gpu[0].present[0].there, 77);
    units = 1;
    charge(&units); /* takes the slot of the dead one */
    dv_share *own = tenant_open(&tenant);
    CHECK_EQUAL(dv_reserve(own, 0, DV_PAGE_UNIT), DV_OK);
    dv_settle(own, 0, DV_PAGE_UNIT, DV_PAGE_UNIT);
    CHECK_EQUAL(dv_turn_part(own, 0, 1000), 1000);
    CHECK_EQUAL(share->gpu[0].present[0].takes_part, 1);
}

static void test_slot_begins_empty(const dv_share *share) {
    dv_page_present *last = &share->gpu[0].present[1];
    *last = (dv_page_present){.done = 1, .there = 2, .waits = 3, .called = 4, .takes_part = 1};
    last->unsaved = DV_PAGE_UNSAVED_IPC;
    uint64_t units = 1;
    wait_exited(spawn(charge, &units));
    CHECK_EQUAL(last->called, 0);
    CHECK_EQUAL(last->unsaved, 0);
    CHECK_EQUAL(last->done, 79);
}

static void test_told(dv_share *share) {
    const dv_page_present *own = &share->gpu[0].present[0];
    const dv_page_residence *residence = &share->gpu[0].residence;
    dv_share *self = tenant_open(&tenant);
    CHECK_EQUAL(dv_reserve(self, 0, DV_PAGE_UNIT), DV_OK);
    dv_present_called(self, 0, 5 * SECOND);
    CHECK_EQUAL(own->called, 5 * SECOND);
    dv_present_called(self, 0, 5 * SECOND + 1000); /* to a millisecond */
    CHECK_EQUAL(own->called, 5 * SECOND);
    dv_present_called(self, 0, 6 * SECOND);
    CHECK_EQUAL(own->called, 6 * SECOND);
    /* Three threads wait at once. */
    dv_residence_held(self, 0, 100, 200);
    dv_residence_held(self, 0, 100, 210);
    dv_residence_held(self, 0, 150, 190);
    CHECK_EQUAL(residence->held, 110);
    dv_residence_moved(self, 0, 3, 4, 5);
    dv_residence_moved(self, 0, 3, 0, 5);
    CHECK_EQUAL(residence->moved_in, 6);
    CHECK_EQUAL(residence->moved_out, 4);
    CHECK_EQUAL(residence->moving, 10);
}

int main(void) {
    tenant_make(&tenant, 2, 64 * MIB);
    dv_share *share = tenant_open(&tenant);
    test_what_closes(share);
    test_without_a_slot(share);
    test_parts(share);
    test_slot_begins_empty(share);
    test_told(share);
    return 0;
}
