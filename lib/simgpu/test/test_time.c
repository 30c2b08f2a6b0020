/* Time to the nanosecond, on a virtual clock: events among a neighbour's slices, streams that
 * compute at once, copies beside kernels, graphs. */
#include "simgpu/test/cuda.h"

#define US 1000ull
#define SLICE (1000 * US)
#define EVENT 500ull

static struct sg_instance *in;
static struct sg_instance neighbour;
static struct sg_engines neighbours_engines;

static void virtual(sim_machine *machine) {
    machine->virtual_clock = 1;
    machine->slice_ns = SLICE;
    machine->event_ns = EVENT;
}

static void move(uint64_t ns) {
    sg_clock_move(in, ns);
}

/* The moment that an event was reached at; it must have been. */
static uint64_t moment(CUevent event) {
    OK(cuEventQuery(event));
    return event->mark.moment;
}

static uint64_t executed(const struct sg_instance *client) {
    sg_advance(in, 0, sg_time(in));
    return sg_channel(client, client->id, 0)->executed;
}

static void neighbour_computes(uint64_t ns) {
    sg_submit(&neighbour, 0, sg_time(in), &neighbours_engines,
              &(struct sg_work){.ns = ns, .engine = SG_ON_MULTIPROCESSORS, .multiprocessors = 1});
}

/* Everybody has done all; the next check begins at a round time. */
static void settle(void) {
    move(1000 * SLICE);
    CHECK_EQUAL(executed(in), sg_channel(in, in->id, 0)->submitted);
    CHECK_EQUAL(executed(&neighbour), sg_channel(in, neighbour.id, 0)->submitted);
}

/* A record on an idle stream waits for its process's turn as every command does. */
static void check_stamps(void) {
    CUevent a, b;
    float ms;

    OK(cuEventCreate(&a, 0));
    OK(cuEventCreate(&b, 0));
    settle();
    uint64_t t = sg_time(in), mine = executed(in), theirs = executed(&neighbour);
    neighbour_computes(10 * SLICE);
    move(300 * US);
    OK(cuEventRecord(a, NULL));
    OK(cuda_busy(NULL, 1500 * US));
    OK(cuEventRecord(b, NULL));
    FAILS(cuEventQuery(a), CUDA_ERROR_NOT_READY);
    move(700 * US);
    FAILS(cuEventQuery(a), CUDA_ERROR_NOT_READY);
    move(EVENT);
    CHECK_EQUAL(moment(a), t + SLICE + EVENT);
    /* Its slice ends before its kernel does; the rest comes after the neighbour's next slice. */
    move(2 * SLICE + 500 * US - 1);
    FAILS(cuEventQuery(b), CUDA_ERROR_NOT_READY);
    move(EVENT + 1);
    CHECK_EQUAL(moment(b), t + 3 * SLICE + 500 * US + 2 * EVENT);
    OK(cuEventElapsedTime(&ms, a, b));
    CHECK(ms == 2.5005f);
    CHECK_EQUAL(executed(in) - mine, 1500 * US + 2 * EVENT);
    CHECK_EQUAL(executed(&neighbour) - theirs, 2 * SLICE);
    OK(cuEventDestroy_v2(a));
    OK(cuEventDestroy_v2(b));
}

int main(void) {
    cuda_start(virtual);
    in = &sg_driver.instance;
    CHECK_EQUAL(sg_open(&neighbour, in->dir, "neighbour", true), 0);
    sg_engines_start(&neighbours_engines, 1);
    check_stamps();
    sg_close(&neighbour);
    return 0;
}
