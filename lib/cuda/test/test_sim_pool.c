/* Pools on simgpu: what they keep is charged, whichever way memory comes and goes. */
#include "cuda/test/sim.h"

#define LIMIT (256 * MIB)

static struct setting s;
static CUstream stream;

static CUdeviceptr alloc(size_t bytes) {
    CUdeviceptr address = 0;
    CHECK_EQUAL(CUDA(&s, cuMemAllocAsync)(&address, bytes, stream), CUDA_SUCCESS);
    CHECK_TRUE_ACCOUNT(&s);
    return address;
}

static void give(CUdeviceptr address) {
    CHECK_EQUAL(CUDA(&s, cuMemFreeAsync)(address, stream), CUDA_SUCCESS);
    CHECK_TRUE_ACCOUNT(&s);
}

static void synchronise(void) {
    CHECK_EQUAL(CUDA(&s, cuStreamSynchronize)(stream), CUDA_SUCCESS);
    CHECK_TRUE_ACCOUNT(&s);
}

static void keep_everything(CUmemoryPool pool, bool keep) {
    cuuint64_t threshold = keep ? UINT64_MAX : 0;
    CHECK_EQUAL(
        CUDA(&s, cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
        CUDA_SUCCESS);
}

static void default_pool_grows_and_shrinks(void) {
    uint64_t before = setting_used(&s);
    CUdeviceptr a = alloc(1000), b = alloc(50 * MIB);
    CHECK(setting_used(&s) >= before + 50 * MIB);
    give(a);
    give(b);
    synchronise();
    CHECK_EQUAL(setting_used(&s), before);
}

/* More than the limit is the error that frameworks expect, and leaves no trace. */
static void refusal_is_out_of_memory(void) {
    CUdeviceptr address = 4711;
    uint64_t before = setting_used(&s);
    CHECK_EQUAL(CUDA(&s, cuMemAllocAsync)(&address, LIMIT, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuMemAllocAsync_ptsz)(&address, SIZE_MAX, stream),
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(address, 0);
    CHECK_EQUAL(setting_used(&s), before);
    CHECK_EQUAL(pending_bytes(s.share, 0), 0);
    CHECK_TRUE_ACCOUNT(&s);
}

/* cuMemFree takes what cuMemAllocAsync gave, and cuMemFreeAsync what cuMemAlloc gave. */
static void frees_cross(void) {
    uint64_t before = setting_used(&s);
    CUdeviceptr pooled = alloc(40 * MIB), linear;
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(pooled), CUDA_SUCCESS);
    CHECK_TRUE_ACCOUNT(&s);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&linear, 6 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemFreeAsync)(linear, stream), CUDA_SUCCESS);
    CHECK(setting_used(&s) >= sim_used(&s, 0));
    synchronise();
    CHECK_EQUAL(setting_used(&s), before);
    CHECK_EQUAL(CUDA(&s, cuMemFreeAsync)(linear, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(pooled), CUDA_ERROR_INVALID_VALUE);
    CHECK_TRUE_ACCOUNT(&s);
}

static CUmemoryPool make_pool(void) {
    CUmemoryPool pool;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CHECK_EQUAL(CUDA(&s, cuMemPoolCreate)(&pool, &props), CUDA_SUCCESS);
    return pool;
}

static CUdeviceptr alloc_from(CUmemoryPool pool, size_t bytes) {
    CUdeviceptr address;
    CHECK_EQUAL(CUDA(&s, cuMemAllocFromPoolAsync)(&address, bytes, pool, stream), CUDA_SUCCESS);
    CHECK_TRUE_ACCOUNT(&s);
    return address;
}

static void own_pools_are_no_way_around(void) {
    CUmemoryPool pools[16];
    CUdeviceptr address;
    uint64_t before = setting_used(&s);
    unsigned count = 0, refused = s.share->gpu[0].refused;
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && count < 16) {
        pools[count] = make_pool();
        result = CUDA(&s, cuMemAllocFromPoolAsync)(&address, 40 * MIB, pools[count++], stream);
        CHECK_TRUE_ACCOUNT(&s);
    }
    CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(s.share->gpu[0].refused, refused + 1); /* in however many ways the pool tried */
    CHECK_EQUAL(s.share->gpu[0].refused_last, 40 * MIB);
    CHECK(sim_peak(&s, 0) <= LIMIT);
    while (count > 0) {
        CHECK_EQUAL(CUDA(&s, cuMemPoolDestroy)(pools[--count]), CUDA_SUCCESS);
    }
    /* The last allocation of each destroyed pool is still there; its context takes it along. */
    CHECK(setting_used(&s) > before);
}

static void destroyed_pool_lives_as_long_as_its_allocations(void) {
    uint64_t before = setting_used(&s);
    CUmemoryPool pool = make_pool();
    CUdeviceptr a = alloc_from(pool, 3 * MIB), b = alloc_from(pool, 3 * MIB);
    CHECK_EQUAL(CUDA(&s, cuMemPoolDestroy)(pool), CUDA_SUCCESS);
    CHECK(setting_used(&s) >= sim_used(&s, 0));
    CHECK(setting_used(&s) > before);
    CHECK_EQUAL(CUDA(&s, cuMemFreeAsync)(a, stream), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemFreeAsync)(b, stream), CUDA_SUCCESS);
    synchronise();
    CHECK_EQUAL(setting_used(&s), before);
}

/* What a pool keeps serves the next request, even where the limit leaves no room for a step. */
static void kept_memory_is_used_again(void) {
    CUmemoryPool pool;
    CUdeviceptr rest[LIMIT / (2 * MIB)];
    unsigned count = 0;
    CHECK_EQUAL(CUDA(&s, cuDeviceGetDefaultMemPool)(&pool, 0), CUDA_SUCCESS);
    keep_everything(pool, true);
    give(alloc(60 * MIB));
    synchronise();
    CHECK(setting_used(&s) >= 60 * MIB);
    while (CUDA(&s, cuMemAlloc_v2)(&rest[count], 2 * MIB) == CUDA_SUCCESS) {
        count++;
    }
    CHECK_EQUAL(setting_used(&s), LIMIT);
    for (int i = 0; i < 10; i++) {
        give(alloc(50 * MIB));
    }
    keep_everything(pool, false);
    CHECK_EQUAL(CUDA(&s, cuMemPoolTrimTo)(pool, 0), CUDA_SUCCESS);
    synchronise();
    while (count > 0) {
        CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(rest[--count]), CUDA_SUCCESS);
    }
    CHECK_EQUAL(CUDA(&s, cuMemPoolTrimTo)(pool, 0), CUDA_SUCCESS);
    CHECK_TRUE_ACCOUNT(&s);
    CHECK_EQUAL(setting_used(&s), SIM_CONTEXT);
}

int main(void) {
    sim_make(&s, 1, LIMIT);
    CUcontext context = setting_context(&s);
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    default_pool_grows_and_shrinks();
    refusal_is_out_of_memory();
    frees_cross();
    destroyed_pool_lives_as_long_as_its_allocations();
    kept_memory_is_used_again();
    own_pools_are_no_way_around();
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    CHECK(setting_used(&s) >= sim_used(&s, 0));
    CHECK(sim_peak(&s, 0) <= LIMIT);
    return 0;
}
