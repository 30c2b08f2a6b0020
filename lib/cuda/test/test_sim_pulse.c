/* Online work is told before it is launched and withdrawn when it is done; a share that gives way
 * launches nothing until then. */
#include "cuda/test/busy.h"

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static struct setting s;
static CUstream stream;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static dv_page_pulse *make_pulse(const char *name) {
    int file = open(setting_path(&s, name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(file >= 0 && ftruncate(file, sizeof(dv_page_pulse)) == 0);
    dv_page_pulse *pulse = mmap(NULL, sizeof *pulse, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(pulse != MAP_FAILED && close(file) == 0);
    pulse->header = (dv_page_header){DV_PAGE_PULSE_MAGIC, DV_PAGE_VERSION, sizeof *pulse};
    return pulse;
}

static uint64_t until(const dv_page_pulse *pulse) {
    uint64_t latest = 0;
    for (unsigned i = 0; i < DV_PAGE_WORKERS; i++) {
        uint64_t one = __atomic_load_n(&pulse->until[i], __ATOMIC_ACQUIRE);
        latest = one > latest ? one : latest;
    }
    return latest;
}

static void launch(uint64_t ns) {
    CHECK_EQUAL(busy_launch(&s, stream, ns), CUDA_SUCCESS);
}

static void online_work_beats(void) {
    dv_page_pulse *pulse = make_pulse("pulse.0");
    busy_budget.flags = DV_PAGE_BUDGET_BEAT;
    busy_grant(&s, 0);
    for (int i = 0; i < 10; i++) {
        launch(5 * MS);
        busy_sync(&s, stream);
    }
    for (int i = 0; i < 10; i++) {
        uint64_t before = now();
        launch(5 * MS);
        CHECK(until(pulse) > before);
    }
    uint64_t during = until(pulse);
    busy_sync(&s, stream);
    CHECK(until(pulse) <= now() + MS);
    CHECK(until(pulse) > 0 && during > 0);
    CHECK_EQUAL(busy_bucket(&s, 0).charged, 0);
    busy_budget.flags = 0;
    busy_grant(&s, 0);
}

static void offline_work_gives_way(void) {
    dv_page_pulse *beat = make_pulse("beat.0.0");
    beat->words = 1;
    busy_budget.flags = DV_PAGE_BUDGET_YIELD;
    busy_budget.pulses = 1;
    busy_budget.pulse_changes = 1;
    busy_grant(&s, 0);
    launch(5 * MS);
    busy_sync(&s, stream);
    CHECK_EQUAL(busy_bucket(&s, 0).waited, 0);
    /* An answer is used again for a moment, and small work is not looked at each time. Whenever a
     * launch looks, the neighbour is at work. */
    uint64_t end = 0;
    while (busy_bucket(&s, 0).wanted == 0) {
        end = now() + 300 * MS;
        __atomic_store_n(&beat->until[0], end, __ATOMIC_RELEASE);
        launch(5 * MS);
    }
    CHECK(now() >= end);
    CHECK(busy_bucket(&s, 0).waited > 0);
    busy_sync(&s, stream);
}

int main(void) {
    busy_make(&s, 1);
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    online_work_beats();
    offline_work_gives_way();
    return 0;
}
