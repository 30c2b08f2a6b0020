/* Prints what an uncontended reservation, settling and release cost together, and what one charge
 * and one look at a balance or a pulse cost. Not a test: times belong to benchmarks. */
#include "share/pulse.h"
#include "share/test/tenant.h"
#include "share/time.h"

#include <fcntl.h>
#include <unistd.h>

/* Prints the ns of one call, where now moves by a microsecond each time. */
#define COST(name, call)                                                                           \
    do {                                                                                           \
        uint64_t start_ = os_now_ns();                                                             \
        for (unsigned i_ = 0; i_ < 2000000; i_++) {                                                \
            now += 1000;                                                                           \
            call;                                                                                  \
        }                                                                                          \
        printf("{\"" name "_ns\": %.1f}\n", (double)(os_now_ns() - start_) / 2000000);             \
    } while (0)

static void time_costs(const struct tenant *tenant, dv_share *share) {
    dv_page_budget budget = {.flags = 7, .rate = 300000, .base = 300000, .burst = 5000000};
    uint64_t now = os_now_ns(), sum = 0;
    dv_page_pulse page = {.header = {DV_PAGE_PULSE_MAGIC, DV_PAGE_VERSION, sizeof page}};
    budget.pulses = 1;
    tenant_grant(tenant, 0, &budget);
    int file = open(tenant_path(tenant, "beat.0.0"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK_EQUAL(write(file, &page, sizeof page), sizeof page);
    CHECK(close(file) == 0);
    const uint32_t *flags = dv_time_flags_word(share, 0);
    COST("flags", sum += __atomic_load_n(flags, __ATOMIC_RELAXED));
    COST("charge", sum += (uint64_t)dv_time_charge(share, 0, now, 250, 1));
    COST("balance", sum += (uint64_t)dv_time_balance(share, 0, now));
    COST("job_balance", sum += (uint64_t)dv_time_job_balance(share, 0, now));
    COST("beating", sum += dv_pulse_beating(share, 0, now));
    CHECK(dv_time_worker(share, 0) >= 0);
    COST("interval", dv_time_interval(share, 0, now, now, 1));
    CHECK(sum != 0);
}

int main(void) {
    static struct tenant tenant;
    tenant_make(&tenant, 1, 1024 * MIB);
    dv_share *share = tenant_open(&tenant);
    time_costs(&tenant, share);
    enum { ROUNDS = 2000000 };
    for (int lap = 0; lap < 5; lap++) {
        uint64_t start = os_now_ns();
        for (int i = 0; i < ROUNDS; i++) {
            CHECK(dv_reserve(share, 0, 2 * MIB) == DV_OK);
            dv_settle(share, 0, 2 * MIB, 2 * MIB);
            dv_release(share, 0, 2 * MIB);
        }
        double whole = (double)(os_now_ns() - start) / ROUNDS;
        start = os_now_ns();
        for (int i = 0; i < ROUNDS; i++) {
            CHECK(dv_reserve(share, 0, 2 * MIB) == DV_OK);
            dv_settle(share, 0, 2 * MIB, 0);
        }
        double none = (double)(os_now_ns() - start) / ROUNDS;
        printf("{\"reserve_settle_release_ns\": %.1f, \"reserve_settle_ns\": %.1f}\n", whole, none);
    }
    return 0;
}
