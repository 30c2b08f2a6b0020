/* Linear memory: the limit, the blocks, and what the driver's answers do to the account. */
#include "cuda/test/setting.h"

#define LIMIT (64 * MIB)

static struct setting s;

static CUdeviceptr alloc(size_t bytes) {
    CUdeviceptr address = 0;
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, bytes), CUDA_SUCCESS);
    return address;
}

static void give(CUdeviceptr address) {
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(address), CUDA_SUCCESS);
}

/* The account is what the driver has really given, and the context's estimate. */
static void check_true(void) {
    CHECK_EQUAL(setting_used(&s), s.driver->blocks * BLOCK + BLOCK);
    CHECK_EQUAL(pending_bytes(s.share, 0), 0);
    check_sums(s.share);
}

static void blocks_are_charged_once(void) {
    CUdeviceptr small[100];
    for (int i = 0; i < 100; i++) {
        small[i] = alloc(100000);
        check_true();
    }
    CUdeviceptr large = alloc(3 * MIB);
    check_true();
    for (int i = 0; i < 100; i++) {
        give(small[i * 37 % 100]);
        check_true();
    }
    give(large);
    check_true();
    CHECK_EQUAL(s.driver->blocks, 0);
}

static void refusals_leave_no_trace(void) {
    CUdeviceptr address = 4711, most = alloc(LIMIT - 2 * BLOCK);
    size_t pitch = 4712;
    unsigned calls = s.driver->allocs;
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 3 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuMemAllocPitch_v2)(&address, &pitch, 1 << 20, 3, 4),
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuMemAllocPitch_v2)(&address, &pitch, SIZE_MAX, SIZE_MAX, 4),
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(address, 0);
    CHECK_EQUAL(pitch, 0);
    CHECK_EQUAL(s.driver->allocs, calls);
    check_true();
    CUdeviceptr last = alloc(2 * MIB); /* up to the last byte of the limit */
    CHECK_EQUAL(setting_used(&s), LIMIT);
    give(last);
    give(most);
    check_true();
}

/* What the program is told counts, once however often the library tried, and who said it. */
static void refusals_are_counted(void) {
    CUdeviceptr address;
    const dv_page_gpu *gpu = &s.share->gpu[0];
    uint32_t limits = gpu->refused, gpus = gpu->refused_by_gpu;
    uint64_t before = gpu->refused_at;
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, LIMIT - 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(gpu->refused, limits + 1);
    CHECK_EQUAL(gpu->refused_last, LIMIT);
    CHECK_EQUAL(gpu->refuser, DV_PAGE_REFUSER_LIMIT);
    CHECK(gpu->refused_at > before);
    CHECK_EQUAL(gpu->refused_largest, UINT64_MAX); /* of an earlier test */

    s.driver->alloc_result = CUDA_ERROR_OUT_OF_MEMORY;
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 100), CUDA_ERROR_OUT_OF_MEMORY);
    s.driver->alloc_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 100), CUDA_ERROR_ILLEGAL_ADDRESS);
    s.driver->alloc_result = CUDA_SUCCESS;
    CHECK_EQUAL(gpu->refused, limits + 1);
    CHECK_EQUAL(gpu->refused_by_gpu, gpus + 1);
    CHECK_EQUAL(gpu->refused_last, 2 * MIB);
    CHECK_EQUAL(gpu->refuser, DV_PAGE_REFUSER_GPU);
    check_true();
}

static void driver_has_the_last_word(void) {
    CUdeviceptr address = 4711, kept = alloc(5 * MIB);
    s.driver->alloc_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 100), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_EQUAL(address, 0);
    s.driver->alloc_result = CUDA_SUCCESS;
    check_true();

    s.driver->free_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(kept), CUDA_ERROR_ILLEGAL_ADDRESS);
    s.driver->free_result = CUDA_SUCCESS;
    check_true();
    give(kept);
    check_true();

    /* Nothing, and what is nobody's, are the driver's to answer. */
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(kept), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(12345), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(NULL, 100), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(CUDA(&s, cuMemAllocManaged)(&address, 100, 1), CUDA_ERROR_NOT_SUPPORTED);
    check_true();
}

/* The fake driver's cuMemAllocPitch calls the public cuMemAlloc, which is ours. */
static void own_calls_of_the_driver_are_charged_once(void) {
    CUdeviceptr address;
    size_t pitch;
    CHECK_EQUAL(CUDA(&s, cuMemAllocPitch_v2)(&address, &pitch, 1000, 10000, 4), CUDA_SUCCESS);
    CHECK_EQUAL(pitch, 1024);
    CHECK_EQUAL(s.driver->blocks, 5);
    check_true();
    give(address);
    check_true();
}

static void context_takes_its_memory_along(void) {
    CUcontext second;
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    uint64_t before = setting_used(&s);
    alloc(10 * MIB);
    alloc(1000);
    CHECK_EQUAL(setting_used(&s), before + 12 * MIB);
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(NULL), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), before);
    CHECK_EQUAL(pending_bytes(s.share, 0), 0);
}

int main(void) {
    setting_make(&s, 1, LIMIT, NULL);
    setting_open(&s);
    CUcontext first = setting_context(&s);
    CHECK_EQUAL(setting_overhead(&s), BLOCK);
    blocks_are_charged_once();
    refusals_leave_no_trace();
    refusals_are_counted();
    driver_has_the_last_word();
    own_calls_of_the_driver_are_charged_once();
    context_takes_its_memory_along();
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(first), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(first), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), 0);
    return 0;
}
