/* What moves when a share leaves and enters. Bytes are judged by the simulated driver's record. */
#include "cuda/test/parts.h"

static void what_was_used_longest_ago_leaves_first(void) {
    parts_use(1);
    parts_leave(0);
    parts_use(6);
    CHECK_EQUAL(parts_resident(), 3 * PART);
    uint64_t in = sim_seen(&s, 0, "bytesIn"), out = sim_seen(&s, 0, "bytesOut");
    parts_leave(PART);
    CHECK_EQUAL(parts_resident(), 2 * PART);
    CHECK_EQUAL(sim_seen(&s, 0, "bytesOut") - out, PART);
    CHECK_EQUAL(orders_present(&s, 0).there, 2 * PART);
    /* What left was not used in the last turn, so nothing comes back by itself. */
    parts_enter(UINT64_MAX / 2);
    CHECK_EQUAL(parts_resident(), 2 * PART);
    parts_use(1);
    CHECK_EQUAL(parts_resident(), 3 * PART);
    CHECK_EQUAL(sim_seen(&s, 0, "bytesIn") - in, PART);
}

static void what_the_last_turn_used_comes_back(void) {
    parts_use(3);
    parts_leave(3 * PART);
    CHECK_EQUAL(parts_resident(), 0);
    CHECK_EQUAL(orders_present(&s, 0).there, 0);
    CHECK_EQUAL(orders_residence(&s, 0).moved_out, 4 * PART);
    parts_enter(PART); /* no more than there is room for */
    CHECK_EQUAL(parts_resident(), PART);
    uint64_t in = sim_seen(&s, 0, "bytesIn");
    parts_enter(UINT64_MAX / 2);
    CHECK_EQUAL(parts_resident(), 2 * PART);
    CHECK_EQUAL(sim_seen(&s, 0, "bytesIn") - in, PART);
    CHECK_EQUAL(orders_residence(&s, 0).moved_in, 2 * PART);
    CHECK(orders_residence(&s, 0).moving > 0);
    in = sim_seen(&s, 0, "faults");
    parts_use(3);
    sim_look();
    CHECK_EQUAL(sim_seen(&s, 0, "faults"), in);
}

static void a_part_of_an_allocation_leaves(void) {
    parts_use(7);
    parts_leave(PART + PART / 2);
    CHECK_EQUAL(parts_resident(), PART + PART / 2);
    parts_enter(UINT64_MAX / 2);
    CHECK_EQUAL(parts_resident(), 3 * PART);
}

/* Others may have had the GPU since, of which the driver tells nobody. It counts as moved by them. */
static void what_was_displaced_comes_back(void) {
    parts_use(6);
    parts_leave(0);
    __extension__ __typeof__(&cuMemPrefetchAsync) move =
        (__typeof__(&cuMemPrefetchAsync))setting_real(&s, "cuMemPrefetchAsync");
    uint64_t there = parts_resident(), moved = orders_residence(&s, 0).moved_in;
    CHECK_EQUAL(move(parts[2], PART, CU_DEVICE_CPU, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQUAL(parts_resident(), there - PART);
    parts_enter(UINT64_MAX / 2);
    CHECK_EQUAL(parts_resident(), there);
    CHECK_EQUAL(orders_residence(&s, 0).moved_in, moved);
    uint64_t faults = sim_seen(&s, 0, "faults");
    parts_use(6);
    CHECK_EQUAL(sim_seen(&s, 0, "faults"), faults);
}

/* A share that has launched nothing in its turn will go on with what it used before. */
static void a_turn_without_use_changes_nothing(void) {
    parts_leave(0);
    parts_use(3);
    parts_leave(3 * PART);
    parts_use(0);
    parts_leave(3 * PART);
    CHECK_EQUAL(parts_resident(), 0);
    parts_enter(UINT64_MAX / 2);
    CHECK_EQUAL(parts_resident(), 2 * PART);
}

int main(void) {
    parts_begin();
    what_was_used_longest_ago_leaves_first();
    what_the_last_turn_used_comes_back();
    a_part_of_an_allocation_leaves();
    what_was_displaced_comes_back();
    a_turn_without_use_changes_nothing();
    return 0;
}
