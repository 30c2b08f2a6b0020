/* Two GPUs of forty chunks on a virtual clock, and processes with managed memory there. */
#ifndef SIMGPU_MACHINE_TEST_PAGES_SETTING_H
#define SIMGPU_MACHINE_TEST_PAGES_SETTING_H

#include "simgpu/machine/test/setting.h"

#define US 1000ull
#define MS 1000000ull
#define BLOCKS 40u                     /* of each GPU */
#define RATE (SG_BLOCK_BYTES * 10000u) /* a chunk in 100 us */
#define CHUNK_NS (100 * US)
#define FAULT_NS (30 * US)

static inline const char *make(uint64_t host_blocks, bool half) {
    static sim_machine machine;

    setting_describe(&machine);
    machine.gpu_count = 2;
    machine.virtual_clock = 1;
    machine.slice_ns = MS;
    machine.half_duplex = half;
    machine.scattered_rate = RATE / 4;
    machine.host_bytes = host_blocks * SG_BLOCK_BYTES;
    for (unsigned i = 0; i < 2; i++) {
        machine.gpus[i].memory_bytes = BLOCKS * SG_BLOCK_BYTES;
        machine.gpus[i].reserved_bytes = 0;
        machine.gpus[i].host_rate = RATE;
    }
    return setting_make(&machine);
}

static inline void enter(struct sg_instance *in, const char *dir, const char *tag) {
    CHECK_EQUAL(sg_open(in, dir, tag, true), 0);
    sg_channel_start(in, 0, 10, 10);
    sg_channel_start(in, 1, 10, 10);
}

static inline int take(struct sg_instance *in, uint32_t chunks, uint32_t *first) {
    sg_state_lock(in);
    int result = sg_chunks_take(in, chunks, first);
    sg_state_unlock(in);
    return result;
}

static inline struct sg_channel *channel(struct sg_instance *in, uint32_t gpu) {
    return sg_channel(in, in->id, gpu);
}

/* Gives work and lets it end; returns how long that took. */
static inline uint64_t run(struct sg_instance *in, uint32_t gpu, struct sg_touch touch,
                           uint64_t ns) {
    struct sg_work work = {.ns = ns, .engine = SG_ON_NONE, .touches = &touch, .touch_count = 1};
    uint64_t from = sg_time(in), end = sg_submit(in, gpu, from, &work), left;

    while (sg_reached(in, gpu, sg_time(in), end, &left) == 0) {
        CHECK(left > 0);
        sg_clock_move(in, left);
    }
    return sg_reached(in, gpu, sg_time(in), end, &left) - from;
}

static inline struct sg_touch reading(uint32_t first, uint32_t chunks) {
    return (struct sg_touch){.first = first, .chunks = chunks, .reads = 1, .kind = SG_SWEEP};
}

static inline struct sg_touch writing(uint32_t first, uint32_t chunks) {
    return (struct sg_touch){.first = first, .chunks = chunks, .writes = 1, .kind = SG_SWEEP};
}

static inline struct sg_touch moving(uint32_t first, uint32_t chunks, bool to_host) {
    return (struct sg_touch){
        .first = first, .chunks = chunks, .kind = to_host ? SG_PREFETCH_HOST : SG_PREFETCH};
}

static inline const struct sg_page_account *account(const struct sg_instance *in, uint32_t gpu) {
    return &sg_pager(in, in->id, gpu)->account;
}

#endif
