/* Managed memory: what single touches cost, who has the GPU meanwhile, what advice changes, host memory that runs out. */
#include <errno.h>
#include <unistd.h>

#include "simgpu/machine/test/pages_setting.h"

/* ---- costs ---- */

static void check_costs(bool half) {
    struct sg_instance a, b;
    uint32_t first, other;
    const char *dir = make(0, half);

    enter(&a, dir, "a");
    enter(&b, dir, "b");
    CHECK_EQUAL(take(&a, BLOCKS + 10, &first), 0);
    CHECK_EQUAL(take(&b, 10, &other), 0);
    /* What nobody filled comes for the price of its faults; what is there costs nothing. */
    CHECK_EQUAL(run(&a, 0, reading(first, 4), 8 * US), 8 * US + 4 * FAULT_NS);
    CHECK_EQUAL(run(&a, 0, writing(first, 4), 8 * US), 8 * US);
    CHECK_EQUAL(account(&a, 0)->in, 0);
    CHECK_EQUAL(account(&a, 0)->stalled_ns, 4 * FAULT_NS);
    CHECK_EQUAL(account(&a, 0)->faults, 4);
    /* The CPU takes one back and writes it: it comes slower then. */
    CHECK_EQUAL(sg_chunks_host(&a, first, 1, true) - sg_time(&a), CHUNK_NS);
    sg_clock_move(&a, CHUNK_NS);
    CHECK_EQUAL(account(&a, 0)->out, SG_BLOCK_BYTES);
    CHECK_EQUAL(run(&a, 0, reading(first, 4), 8 * US), 8 * US + FAULT_NS + 4 * CHUNK_NS);
    CHECK_EQUAL(account(&a, 0)->in, SG_BLOCK_BYTES);
    /* A full GPU: the one that came longest ago goes, written ones by the link, read ones for nothing. */
    CHECK_EQUAL(run(&a, 0, reading(first + 4, BLOCKS - 4), 1), 1 + (BLOCKS - 4) * FAULT_NS);
    CHECK_EQUAL(run(&b, 0, reading(other, 1), 1), 1 + FAULT_NS + CHUNK_NS);
    CHECK_EQUAL(account(&a, 0)->out, 2 * SG_BLOCK_BYTES);
    CHECK_EQUAL(account(&a, 0)->resident, BLOCKS - 1);
    CHECK_EQUAL(account(&b, 0)->resident, 1);
    /* Prefetches have no faults. */
    uint64_t faults = account(&a, 0)->faults;
    CHECK_EQUAL(run(&a, 0, moving(first, 4, true), 1), 1 + 2 * CHUNK_NS + 1);
    CHECK_EQUAL(account(&a, 0)->resident, BLOCKS - 4);
    CHECK_EQUAL(run(&a, 0, moving(first, 4, false), 1),
                1 + (4 + 3) * CHUNK_NS); /* the first as the CPU left it */
    CHECK_EQUAL(account(&a, 0)->faults, faults);
    sg_close(&a);
    CHECK_EQUAL(b.state->gpus[0].pages.resident, 1);
    sg_close(&b);
}

/* Who waits gives its slice away, and its GPU time does not pass. */
static void check_slices(void) {
    struct sg_instance a, b;
    struct sg_touch touch;
    uint32_t first;
    const char *dir = make(0, true);

    enter(&a, dir, "a");
    enter(&b, dir, "b");
    CHECK_EQUAL(take(&a, 20, &first), 0);
    sg_chunks_host(&a, first, 20, true);
    touch = reading(first, 20);
    struct sg_work sweep = {.ns = 200 * US,
                            .engine = SG_ON_MULTIPROCESSORS,
                            .multiprocessors = 10,
                            .touches = &touch,
                            .touch_count = 1};
    sg_submit(&a, 0, sg_time(&a), &sweep);
    setting_submit(&b, 0, 100 * MS);
    sg_clock_move(&a, 5 * MS);
    sg_advance(&a, 0, sg_time(&a));
    /* A chunk takes 430 us; b has all of that, and a its 10 us when b's slice of 1 ms is over. */
    CHECK(channel(&a, 0)->executed <= 60 * US);
    CHECK(channel(&b, 0)->executed >= 4900 * US);
    CHECK_EQUAL(channel(&a, 0)->executed + channel(&b, 0)->executed, a.state->gpus[0].busy_ns);
    sg_close(&b);
    sg_close(&a);
}

/* Of the clients of one MPS server one waits and the other goes on, as if it were alone. */
static void check_group(void) {
    struct sg_instance server, a, b;
    struct sg_touch touch;
    uint32_t first;
    const char *dir = make(0, true);

    enter(&server, dir, "server");
    enter(&a, dir, "a");
    enter(&b, dir, "b");
    sg_group_join(&server, 0, server.id, server.id);
    sg_group_join(&server, 0, a.id, server.id);
    sg_group_join(&server, 0, b.id, server.id);
    CHECK_EQUAL(take(&a, 5, &first), 0);
    sg_chunks_host(&a, first, 5, true);
    touch = reading(first, 5);
    struct sg_work sweep = {.ns = 50 * US,
                            .engine = SG_ON_MULTIPROCESSORS,
                            .multiprocessors = 10,
                            .touches = &touch,
                            .touch_count = 1};
    sg_submit(&a, 0, sg_time(&a), &sweep);
    struct sg_work whole = {.ns = MS, .engine = SG_ON_MULTIPROCESSORS, .multiprocessors = 10};
    sg_submit(&b, 0, sg_time(&b), &whole);
    sg_clock_move(&a, FAULT_NS + 4 * CHUNK_NS);
    sg_advance(&a, 0, sg_time(&a));
    CHECK_EQUAL(channel(&a, 0)->executed, 0);
    CHECK_EQUAL(channel(&b, 0)->executed, FAULT_NS + 4 * CHUNK_NS);
    /* Until the next chunk is missing both have half of the GPU. */
    sg_clock_move(&a, 20 * US);
    sg_advance(&a, 0, sg_time(&a));
    CHECK_EQUAL(channel(&a, 0)->executed, 10 * US);
    CHECK_EQUAL(channel(&b, 0)->executed, FAULT_NS + 4 * CHUNK_NS + 10 * US);
    sg_close(&b);
    sg_close(&a);
    sg_close(&server);
}

/* What a process had that was killed is free: nobody waits for it to leave, nor for what it still wanted. */
static void check_death(void) {
    struct sg_instance b;
    const char *dir = make(0, true);
    uint32_t other;
    int ends[2];
    char byte;

    enter(&b, dir, "b");
    CHECK_EQUAL(pipe(ends), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct sg_instance a;
        uint32_t first;
        enter(&a, dir, "a");
        CHECK_EQUAL(take(&a, 2 * BLOCKS, &first), 0);
        run(&a, 0, writing(first, BLOCKS), 1);
        struct sg_touch all = moving(first, 2 * BLOCKS, false);
        struct sg_work work = {.ns = 1, .engine = SG_ON_NONE, .touches = &all, .touch_count = 1};
        sg_submit(&a, 0, sg_time(&a), &work);
        sg_clock_move(&a, 10);
        sg_advance(&a, 0, sg_time(&a));
        CHECK(sg_pager(&a, a.id, 0)->until);
        CHECK_EQUAL(write(ends[1], "r", 1), 1);
        for (;;) {
            pause();
        }
    }
    CHECK_EQUAL(read(ends[0], &byte, 1), 1);
    setting_kill(child);
    sg_clock_move(&b, 3 * MS);
    sg_advance(&b, 0, sg_time(&b));
    CHECK_EQUAL(b.state->gpus[0].pages.resident, 0);
    CHECK_EQUAL(take(&b, 10, &other), 0);
    CHECK_EQUAL(run(&b, 0, reading(other, 10), 10), 10 + 10 * FAULT_NS);
    sg_close(&b);
}

/* ---- advice, and several GPUs ---- */

static void check_advice(void) {
    struct sg_instance a;
    uint32_t first;

    enter(&a, make(0, true), "a");
    CHECK_EQUAL(take(&a, 3, &first), 0);
    CHECK_EQUAL(run(&a, 0, writing(first, 3), 3), 3 + 3 * FAULT_NS);
    /* From GPU to GPU: it leaves one and comes to the other. */
    CHECK_EQUAL(run(&a, 1, reading(first, 1), 1), 1 + FAULT_NS + CHUNK_NS);
    CHECK_EQUAL(account(&a, 0)->resident, 2);
    CHECK_EQUAL(account(&a, 0)->out, SG_BLOCK_BYTES);
    CHECK_EQUAL(account(&a, 1)->in, SG_BLOCK_BYTES);
    /* Mostly read: a copy, until somebody writes. */
    sg_chunks_advise(&a, first + 1, 1, SG_CHUNK_READ_MOSTLY, 0);
    run(&a, 1, reading(first + 1, 1), 1);
    CHECK_EQUAL(account(&a, 0)->resident, 2);
    CHECK_EQUAL(account(&a, 1)->resident, 2);
    CHECK_EQUAL(run(&a, 0, reading(first + 1, 1), 1), 1);
    run(&a, 0, writing(first + 1, 1), 1);
    CHECK_EQUAL(account(&a, 1)->resident, 1);
    /* Reached where it is: the bytes cross the link each time, and nothing moves. */
    sg_chunks_advise(&a, first + 2, 1, SG_CHUNK_REACHED(1), 0);
    CHECK_EQUAL(run(&a, 1, reading(first + 2, 1), 1), 1 + CHUNK_NS);
    CHECK_EQUAL(run(&a, 1, reading(first + 2, 1), 1), 1 + CHUNK_NS);
    CHECK_EQUAL(account(&a, 1)->resident, 1);
    /* Prefers the host: it stays there once it is there. */
    sg_chunks_advise(&a, first + 2, 1, SG_CHUNK_AT_HOST, SG_CHUNK_REACHED(1));
    run(&a, 0, moving(first + 2, 1, true), 1);
    CHECK_EQUAL(run(&a, 0, reading(first + 2, 1), 1), 1 + CHUNK_NS);
    CHECK_EQUAL(account(&a, 0)->resident, 1);
    sg_close(&a);
}

/* ---- host memory ---- */

static void check_host(void) {
    struct sg_instance a, b;
    uint32_t first, more, numbers[BLOCKS];

    const char *dir = make(10, true);
    enter(&a, dir, "a");
    enter(&b, dir, "b");
    CHECK_EQUAL(take(&a, 11, &first), -ENOMEM);
    CHECK_EQUAL(take(&a, 10, &first), 0);
    sg_chunks_host(&a, first, 10, true);
    CHECK_EQUAL(a.state->pages.host_chunks, 10);
    CHECK_EQUAL(take(&b, 1, &more), -ENOMEM);
    run(&a, 0, writing(first, 10), 10);
    CHECK_EQUAL(a.state->pages.host_chunks, 0);
    CHECK_EQUAL(take(&b, 10, &more), 0);
    sg_chunks_host(&b, more, 10, true);
    /* Ordinary memory evicts what it needs room of, as far as the host has room. */
    sg_state_lock(&b);
    CHECK_EQUAL(sg_blocks_take(&b, 0, SG_LINEAR, BLOCKS - 10, numbers), 0);
    CHECK_EQUAL(b.displaced, 0);
    CHECK_EQUAL(sg_blocks_take(&b, 0, SG_LINEAR, 1, numbers + BLOCKS - 10), -ENOMEM);
    sg_state_unlock(&b);
    CHECK_EQUAL(account(&a, 0)->resident, 10);
    /* A kernel whose chunk cannot come goes on without, and its process is told. */
    run(&b, 0, writing(more, 1), 1);
    CHECK_EQUAL(sg_pager(&b, b.id, 0)->failed, 1);
    sg_chunks_return(&b, more, 10);
    sg_state_lock(&b);
    CHECK_EQUAL(sg_blocks_take(&b, 0, SG_LINEAR, 4, numbers + BLOCKS - 10), 0);
    sg_state_unlock(&b);
    CHECK_EQUAL(b.displaced - sg_time(&b), 4 * CHUNK_NS);
    CHECK_EQUAL(account(&a, 0)->resident, 6);
    CHECK_EQUAL(account(&a, 0)->out, 4 * SG_BLOCK_BYTES);
    CHECK_EQUAL(a.state->pages.host_chunks, 4);
    sg_close(&b);
    sg_close(&a);
}

/* ---- instances ---- */

/* A GPU instance's memory is its users' alone: eight chunks of each here. */
static void check_instances(void) {
    struct sg_instance user[2];
    uint32_t first[2], numbers[8];
    sim_machine machine;

    setting_describe(&machine);
    machine.virtual_clock = 1;
    machine.gpus[0].host_rate = RATE;
    machine.gpus[0].mig = SIM_MIG_ON;
    const char *dir = setting_make(&machine);
    for (uint32_t i = 0; i < 2; i++) {
        enter(&user[i], dir, i ? "b" : "a");
        sg_state_lock(&user[i]);
        int gi = sg_mig_create(&user[i], 0, 0, SG_MIG_ANYWHERE);
        int ci = sg_mig_compute_create(&user[i], 0, (uint32_t)gi, 1, SG_MIG_ANYWHERE);
        CHECK(gi >= 0 && ci >= 0);
        CHECK(sg_mig_enter(&user[i], sg_place_of(0, (uint32_t)gi, (uint32_t)ci)));
        CHECK_EQUAL(sg_mig_blocks(&user[i], 0, (uint32_t)gi), 8);
        sg_state_unlock(&user[i]);
        CHECK_EQUAL(take(&user[i], 10, &first[i]), 0);
        run(&user[i], 0, writing(first[i], 8), 8);
    }
    CHECK_EQUAL(account(&user[0], 0)->resident, 8);
    run(&user[1], 0, writing(first[1] + 8, 2), 2);
    CHECK_EQUAL(account(&user[0], 0)->resident, 8);
    CHECK_EQUAL(account(&user[1], 0)->resident, 8);
    CHECK_EQUAL(account(&user[1], 0)->out, 2 * SG_BLOCK_BYTES);
    /* Ordinary memory displaces that of its own instance. */
    sg_state_lock(&user[1]);
    CHECK_EQUAL(sg_blocks_take(&user[1], 0, SG_LINEAR, 5, numbers), 0);
    CHECK_EQUAL(sg_blocks_free(&user[1], 0), 0);
    CHECK_EQUAL(sg_blocks_take(&user[1], 0, SG_LINEAR, 4, numbers), -ENOMEM);
    sg_state_unlock(&user[1]);
    CHECK_EQUAL(account(&user[0], 0)->resident, 8);
    CHECK_EQUAL(account(&user[1], 0)->resident, 3);
    sg_close(&user[0]);
    sg_close(&user[1]);
}

int main(void) {
    check_costs(true);
    check_costs(false);
    check_slices();
    check_group();
    check_death();
    check_advice();
    check_host();
    check_instances();
    return 0;
}
