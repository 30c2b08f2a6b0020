/* How long calls blocked: those for copies and those that wait are counted apart, and what overlaps counts once, whatever the
 * page holds. */
#include "share/test/tenant.h"
#include "share/time.h"

#define MS 1000000ll
#define NOW 5000000000000ull

int main(void) {
    static struct tenant tenant; /* it is removed at exit */
    tenant_make(&tenant, 4, MIB);
    dv_share *share = tenant_open(&tenant);
    dv_page_gpu *gpu = &share->gpu[1];
    gpu->copied = gpu->copied_until = gpu->awaited = gpu->awaited_until = 0;
    dv_time_blocked(share, 1, true, NOW, NOW + 9000 * MS);
    dv_time_blocked(share, 1, true, NOW + 5000 * MS, NOW + 9001 * MS);
    dv_time_blocked(share, 1, true, NOW, NOW + 8500 * MS);
    CHECK_EQUAL(gpu->copied, 9001 * MS);
    CHECK_EQUAL(gpu->awaited, 0);
    dv_time_blocked(share, 1, false, NOW, NOW + 2 * MS);
    dv_time_blocked(share, 1, false, NOW + 3 * MS, NOW + 2 * MS);
    CHECK_EQUAL(gpu->awaited, 2 * MS);
    gpu->awaited_until = UINT64_MAX;
    dv_time_blocked(share, 1, false, NOW + 20 * MS, NOW + 21 * MS);
    CHECK_EQUAL(gpu->awaited, 3 * MS);
    CHECK_EQUAL(gpu->awaited_until, NOW + 21 * MS);
    dv_time_blocked(share, 4, true, NOW, NOW + MS); /* no such device */
    return 0;
}
