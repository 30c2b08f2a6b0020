/* Prints what an uncontended reservation, settling and release cost together. Not a test: times
 * belong to benchmarks. */
#include "common/test/tenant.h"

int main(void) {
    static struct tenant tenant;
    tenant_make(&tenant, 1, 1024 * MIB);
    dv_share *share = tenant_open(&tenant);
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
