/* Reading limits of adapters, as the kernel writes them and as nobody does. */
#include "cover/quota.h"
#include "test/check.h"

#include <string.h>

static void adds(const char *lines, const char *adapter, long long handles, long long objects) {
    struct quota sum = {.handles = 1, .objects = 2};
    CHECK(quota_add(lines, adapter, &sum));
    CHECK(sum.handles == 1 + handles && sum.objects == 2 + objects);
}

static void lacks(const char *lines, const char *adapter) {
    struct quota sum = {.handles = 1, .objects = 2};
    CHECK(!quota_add(lines, adapter, &sum));
    CHECK(sum.handles == 1 && sum.objects == 2);
}

int main(void) {
    const char *lines = "mlx5_10 hca_handle=7 hca_object=9 \n"
                        "mlx5_1 hca_handle=64 hca_object=65536 \n"
                        "mlx5_2 hca_handle=max hca_object=max \n"
                        "mlx5_3 hca_object=5 hca_handle=max\n";
    adds(lines, "mlx5_1", 64, 65536);
    adds(lines, "mlx5_1 hca_handle=1 hca_object=1", 64, 65536);
    adds(lines, "mlx5_10", 7, 9);
    adds(lines, "mlx5_2", 0, 0);
    adds(lines, "mlx5_3", 0, 5);
    adds("a hca_handle=3", "a", 3, 0);
    adds("a x_hca_handle=3 hca_object=-4\n", "a", 0, 0);
    adds("a hca_handle=\nb hca_handle=3\n", "a", 0, 0);
    adds("a hca_handle\n", "a", 0, 0);
    lacks(lines, "mlx5_");
    lacks(lines, "mlx5");
    lacks(lines, "");
    lacks(lines, " ");
    lacks("a\n", "a");
    lacks("", "a");

    struct quota sum = {.handles = QUOTA_MOST - 1};
    CHECK(quota_add("a hca_handle=99 hca_object=99999999999999999999\n", "a", &sum));
    CHECK(sum.handles == QUOTA_MOST && sum.objects == QUOTA_MOST);
    return 0;
}
