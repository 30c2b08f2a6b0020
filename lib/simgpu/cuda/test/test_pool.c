/* Memory pools: growth, thresholds, trimming, sharing of attributes. */
#include "simgpu/cuda/test/cuda.h"

#define CHUNK (32 * MIB)

static cuuint64_t figure(CUmemoryPool pool, CUmemPool_attribute attribute) {
    cuuint64_t value;

    OK(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static CUmemoryPool pool_of_device(void) {
    CUmemoryPool pool, same;

    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuDeviceGetMemPool(&same, 0));
    CHECK(pool == same);
    return pool;
}

static void check_growth(void) {
    CUmemoryPool pool = pool_of_device();
    CUdeviceptr a, b;

    OK(cuMemAllocAsync(&a, 1000, NULL));
    CHECK_EQUAL(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), CHUNK);
    CHECK_EQUAL(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1000);
    CHECK_EQUAL(cuda_true(SG_POOL), CHUNK);
    OK(cuMemAllocAsync(&b, 40 * MIB + 1, NULL));
    CHECK_EQUAL(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), CHUNK + 42 * MIB);
    OK(cuMemsetD8Async(b, 1, 40 * MIB + 1, NULL));
    OK(cuMemFreeAsync(b, NULL));
    FAILS(cuMemFreeAsync(b, NULL), CUDA_ERROR_INVALID_VALUE);
    /* Freed memory stays in the pool until something is synchronised. */
    CHECK_EQUAL(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), CHUNK + 42 * MIB);
    OK(cuStreamSynchronize(NULL));
    CHECK_EQUAL(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), CHUNK);
    CHECK_EQUAL(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), CHUNK + 42 * MIB);
    cuuint64_t zero = 0, one = 1;
    FAILS(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &one),
          CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
    CHECK_EQUAL(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), CHUNK);
    OK(cuMemFree_v2(a));
    OK(cuCtxSynchronize());
    CHECK_EQUAL(cuda_true(SG_POOL), 0);
}

static void check_threshold(void) {
    CUmemoryPool pool = pool_of_device();
    cuuint64_t keep = 50 * MIB, none = 0;
    CUdeviceptr a;

    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    OK(cuMemAllocAsync(&a, 40 * MIB, NULL));
    OK(cuMemFreeAsync(a, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK_EQUAL(cuda_true(SG_POOL), 40 * MIB);
    OK(cuMemPoolTrimTo(pool, 40 * MIB));
    CHECK_EQUAL(cuda_true(SG_POOL), 40 * MIB);
    OK(cuMemPoolTrimTo(pool, 40 * MIB - 1));
    CHECK_EQUAL(cuda_true(SG_POOL), 0);
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none));
}

static void check_custom(void) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                            .maxSize = 16 * MIB};
    CUmemoryPool pool, current;
    CUdeviceptr a, b;
    CUmemAccess_flags flags;

    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemAllocFromPoolAsync(&a, 10 * MIB, pool, NULL));
    FAILS(cuMemAllocFromPoolAsync(&b, 10 * MIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuDeviceSetMemPool(0, pool));
    OK(cuMemAllocAsync(&b, MIB, NULL));
    CHECK_EQUAL(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 11 * MIB);
    OK(cuMemPoolGetAccess(&flags, pool, &props.location));
    CHECK_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    /* Pointers outlive the pool's handle. */
    OK(cuMemPoolDestroy(pool));
    FAILS(cuMemPoolTrimTo(pool, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuDeviceGetMemPool(&current, 0));
    CHECK(current == pool_of_device());
    OK(cuMemsetD8_v2(b, 1, MIB));
    OK(cuMemFreeAsync(a, NULL));
    OK(cuMemFree_v2(b));
    CHECK_EQUAL(cuda_true(SG_POOL), 0);
    FAILS(cuMemPoolDestroy(pool_of_device()), CUDA_ERROR_INVALID_VALUE);
    props.location.id = 99;
    FAILS(cuMemPoolCreate(&pool, &props), CUDA_ERROR_INVALID_DEVICE);
}

/* When no chunk fits any more, what is missing is taken, to the last block. */
static void check_full(void) {
    CUdeviceptr most, a, b;
    size_t free_bytes, total;

    OK(cuMemGetInfo_v2(&free_bytes, &total));
    OK(cuMemAlloc_v2(&most, free_bytes - 6 * MIB));
    OK(cuMemAllocAsync(&a, 3 * MIB, NULL));
    CHECK_EQUAL(cuda_true(SG_POOL), 4 * MIB);
    OK(cuMemAllocAsync(&b, 2 * MIB, NULL));
    FAILS(cuMemAllocAsync(&b, 2 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFree_v2(most));
    OK(cuMemFreeAsync(a, NULL));
    OK(cuMemFreeAsync(b, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQUAL(cuda_true(SG_POOL), 0);
}

int main(void) {
    cuda_start(NULL);
    check_growth();
    check_threshold();
    check_custom();
    check_full();
    CHECK_EQUAL(cuda_true_all(), 4 * MIB);
    return 0;
}
