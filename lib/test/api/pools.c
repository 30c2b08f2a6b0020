/* Memory in a stream's order, and pools. */
#include "test/api/api.h"

static cuuint64_t figure(CUmemoryPool pool, CUmemPool_attribute attribute) {
    cuuint64_t value = 77;

    OK(cuMemPoolGetAttribute, pool, attribute, &value);
    return value;
}

static void check_flags(CUmemoryPool pool) {
    int flag = 77;

    static const CUmemPool_attribute flags[] = {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                                                CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                                                CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES};
    for (size_t i = 0; i < COUNT(flags); i++) {
        int off = 0;
        OK(cuMemPoolGetAttribute, pool, flags[i], &flag);
        SAME(flag, 1);
        OK(cuMemPoolSetAttribute, pool, flags[i], &off);
        OK(cuMemPoolGetAttribute, pool, flags[i], &flag);
        SAME(flag, 0);
    }
}

void api_case_pools(void) {
    CUmemoryPool pool = NULL, same = NULL, of = NULL;
    CUdeviceptr a = 0, b = 0;
    CUstream s = NULL;
    cuuint64_t zero = 0, one = 1, keep = 64 * MIB;

    api_begin();
    OK(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    OK(cuDeviceGetDefaultMemPool, &pool, 0);
    OK(cuDeviceGetMemPool, &same, 0);
    TRUE(pool == same);
    OK(cuMemAllocAsync, &a, 1000, s);
    OK(cuMemAllocAsync, &b, 4 * MIB, s);
    SAME(a % 256, 0);
    OK(cuMemsetD8Async, a, 3, 1000, s);
    OK(cuMemsetD8Async, b, 4, 4 * MIB, s);
    OK(cuStreamSynchronize, s);
    TRUE(api_is_filled(a, 3, 1000) && api_is_filled(b, 4, 4 * MIB));
    TRUE(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= 4 * MIB + 1000);
    TRUE(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >=
         figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    TRUE(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 4 * MIB + 1000);
    OK(cuPointerGetAttribute, &of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a);
    TRUE(of == pool);
    OK(cuMemFreeAsync, b, s);
    INVALID(cuMemFreeAsync, b, s);
    OK(cuMemFreeAsync, a, s);
    OK(cuStreamSynchronize, s);
    SAME(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    SAME(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    OK(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero);
    SAME(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
    INVALID(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one);
    INVALID(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &one);
    SAME(figure(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
    OK(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    SAME(figure(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 64 * MIB);
    OK(cuMemAllocAsync, &a, 4 * MIB, s);
    OK(cuMemFreeAsync, a, s);
    OK(cuStreamSynchronize, s);
    TRUE(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 4 * MIB);
    OK(cuMemPoolTrimTo, pool, 0);
    SAME(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    check_flags(pool);
    INVALID(cuMemPoolGetAttribute, pool, (CUmemPool_attribute)99, &keep);
    INVALID(cuMemPoolGetAttribute, NULL, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    INVALID(cuMemPoolDestroy, pool);
    INVALID(cuMemAllocAsync, NULL, 10, s);
    INVALID(cuMemFreeAsync, ABSENT, s);
    ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync, &a, (size_t)1 << 44, s);
}

void api_case_own_pools(void) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemoryPool pool = NULL, current = NULL, standard = NULL;
    CUdeviceptr a = 0, b = 0;
    CUmemAccess_flags flags = (CUmemAccess_flags)77;

    api_begin();
    OK(cuMemPoolCreate, &pool, &props);
    OK(cuMemAllocFromPoolAsync, &a, 1000, pool, NULL);
    OK(cuMemsetD8_v2, a, 9, 1000);
    TRUE(api_is_filled(a, 9, 1000));
    OK(cuDeviceGetDefaultMemPool, &standard, 0);
    OK(cuDeviceSetMemPool, 0, pool);
    OK(cuDeviceGetMemPool, &current, 0);
    TRUE(current == pool);
    OK(cuMemAllocAsync, &b, MIB, NULL);
    TRUE(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= MIB + 1000);
    OK(cuMemPoolGetAccess, &flags, pool, &props.location);
    SAME(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemPoolSetAccess, pool, &access, 1);
    OK(cuMemPoolDestroy, pool);
    INVALID(cuMemPoolTrimTo, pool, 0);
    OK(cuDeviceGetMemPool, &current, 0);
    TRUE(current == standard);
    OK(cuMemsetD8_v2, b, 1, MIB);
    OK(cuMemFreeAsync, a, NULL);
    OK(cuMemFree_v2, b);
    OK(cuCtxSynchronize);
    props.location.id = 9999;
    ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuMemPoolCreate, &pool, &props);
    props.location.id = 0;
    props.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
    INVALID(cuMemPoolCreate, &pool, &props);
    INVALID(cuMemPoolCreate, &pool, NULL);
    INVALID(cuMemPoolCreate, NULL, &props);
    ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetDefaultMemPool, &pool, 9999);
    INVALID(cuDeviceSetMemPool, 0, NULL);
}
