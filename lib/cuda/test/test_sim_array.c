/* Arrays on simgpu: charged by their padded size, never less than they take. */
#include "cuda/test/sim.h"

#define LIMIT ((uint64_t)1 << 30)

static struct setting s;

static void check_account(void) {
    CHECK(setting_used(&s) >= sim_used(&s, 0));
    CHECK(sim_peak(&s, 0) <= LIMIT);
    CHECK_EQUAL(pending_bytes(s.share, 0), 0);
}

static void plain(void) {
    CUarray arrays[4], refused = (CUarray)&s;
    uint64_t before = setting_used(&s);
    CUDA_ARRAY_DESCRIPTOR plane = {1000, 1000, CU_AD_FORMAT_FLOAT, 4};
    CUDA_ARRAY3D_DESCRIPTOR volume = {100, 100, 100, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    CUDA_ARRAY_DESCRIPTOR line = {5000, 0, CU_AD_FORMAT_HALF, 2};
    CUDA_ARRAY3D_DESCRIPTOR huge = {30000, 30000, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CHECK_EQUAL(CUDA(&s, cuArrayCreate_v2)(&arrays[0], &plane), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuArray3DCreate_v2)(&arrays[1], &volume), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuArrayCreate_v2)(&arrays[2], &line), CUDA_SUCCESS);
    check_account();
    CHECK(setting_used(&s) >= before + 16 * 1000 * 1000);
    CHECK_EQUAL(CUDA(&s, cuArray3DCreate_v2)(&refused, &huge), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(refused == (CUarray)&s);
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(CUDA(&s, cuArrayDestroy)(arrays[i]), CUDA_SUCCESS);
    }
    CHECK(CUDA(&s, cuArrayDestroy)(NULL) != CUDA_SUCCESS);
    check_account();
    CHECK_EQUAL(setting_used(&s), before);
}

static void mipmapped(void) {
    CUmipmappedArray array;
    CUarray level;
    uint64_t before = setting_used(&s);
    CUDA_ARRAY3D_DESCRIPTOR what = {2048, 2048, 0, CU_AD_FORMAT_FLOAT, 4, 0};
    CHECK_EQUAL(CUDA(&s, cuMipmappedArrayCreate)(&array, &what, 12), CUDA_SUCCESS);
    check_account();
    uint64_t with = setting_used(&s);
    CHECK(with >= before + 16 * 2048 * 2048 * 4 / 3);
    CHECK_EQUAL(CUDA(&s, cuMipmappedArrayGetLevel)(&level, array, 3), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), with); /* a view */
    CHECK_EQUAL(CUDA(&s, cuMipmappedArrayDestroy)(array), CUDA_SUCCESS);
    check_account();
    CHECK_EQUAL(setting_used(&s), before);
}

static void arrays_are_no_way_around(CUcontext context) {
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR plane = {4096, 4096, CU_AD_FORMAT_FLOAT, 4};
    int count = 0;
    while (CUDA(&s, cuArrayCreate_v2)(&array, &plane) == CUDA_SUCCESS) {
        CHECK(count++ < 4);
        check_account();
    }
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), 0);
    CHECK_EQUAL(sim_used(&s, 0), 0);
}

int main(void) {
    sim_make(&s, 1, LIMIT);
    CUcontext context = setting_context(&s);
    plain();
    mipmapped();
    arrays_are_no_way_around(context);
    return 0;
}
