/* GPU time on simgpu: launches are charged what they cost, and what is charged is told, as measured
 * or as not. */
#include "cuda/test/busy.h"

#include <stddef.h>

#define TRIES 10

static struct setting s;
static CUstream stream;

static void begin(void) {
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
}

/* What a stream owes is charged when it ends, at the latest. */
static void end(void) {
    CHECK_EQUAL(CUDA(&s, cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
}

/* What has been told since the last look; the page keeps only the latest intervals. */
static uint64_t told(dv_page_worker *before) {
    dv_page_worker now = busy_worker(&s, 0);
    uint64_t sum = now.unmeasured - before->unmeasured;
    CHECK(now.count - before->count <= DV_PAGE_INTERVALS);
    for (uint32_t i = before->count; i < now.count; i++) {
        sum += now.interval[i % DV_PAGE_INTERVALS].charged;
    }
    *before = now;
    return sum;
}

/* Launches so many kernels of ns, waiting after each `sync`. */
static void every_launch_is_charged_and_told(unsigned count, unsigned sync, uint64_t ns) {
    dv_page_bucket bucket = busy_bucket(&s, 0);
    dv_page_worker worker = busy_worker(&s, 0);
    uint64_t sum = 0;
    begin();
    for (unsigned i = 1; i <= count; i++) {
        CHECK_EQUAL(busy_launch(&s, stream, ns), CUDA_SUCCESS);
        if (i % sync == 0) {
            busy_sync(&s, stream);
        }
        sum += told(&worker);
    }
    busy_sync(&s, stream);
    end();
    sum += told(&worker);
    dv_page_bucket now = busy_bucket(&s, 0);
    CHECK_EQUAL(now.launches - bucket.launches, count);
    CHECK_EQUAL(now.charged - bucket.charged, sum);
    CHECK_EQUAL(worker.open_since, 0);
}

static bool is_charged_what_it_takes(uint64_t ns) {
    uint64_t before = busy_bucket(&s, 0).charged;
    every_launch_is_charged_and_told(10, 1, ns);
    uint64_t charged = busy_bucket(&s, 0).charged - before;
    return charged > 5 * ns && charged < 20 * ns;
}

/* A kernel is charged what it takes once that is known. A program that is kept from its processor beside a
 * launch measures too much, but not each time. */
static void costs_are_learned(uint64_t ns) {
    unsigned tries = 1;
    every_launch_is_charged_and_told(12, 1, ns);
    while (!is_charged_what_it_takes(ns)) {
        CHECK(tries++ < TRIES);
    }
}

static void intervals_follow_each_other(void) {
    dv_page_worker worker = busy_worker(&s, 0);
    CHECK(worker.count > 0);
    uint32_t first = worker.count > DV_PAGE_INTERVALS ? worker.count - DV_PAGE_INTERVALS : 0;
    for (uint32_t i = first; i < worker.count; i++) {
        const dv_page_interval *interval = &worker.interval[i % DV_PAGE_INTERVALS];
        CHECK(interval->begin <= interval->end);
        CHECK(i == first || interval->begin >= worker.interval[(i - 1) % DV_PAGE_INTERVALS].end);
    }
}

int main(void) {
    busy_make(&s, 1);
    every_launch_is_charged_and_told(12, 12, MS);
    every_launch_is_charged_and_told(14, 2, MS);
    costs_are_learned(2 * MS);
    intervals_follow_each_other();
    return 0;
}
