/* Contexts: stacks of threads, primary contexts, limits. */
#include "test/api/api.h"

#include <pthread.h>

static CUcontext top(void) {
    CUcontext ctx = (CUcontext)7;

    CU(cuCtxGetCurrent)(&ctx);
    return ctx;
}

static void check_facts(CUcontext ctx) {
    CUdevice device = 77;
    CUcontext same = NULL;
    unsigned flags = 77, version = 0;
    unsigned long long id = 0, other = 0;

    OK(cuCtxGetDevice, &device);
    SAME(device, 0);
    INVALID(cuCtxGetDevice, NULL);
    OK(cuCtxGetFlags, &flags);
    SAME(flags & CU_CTX_SCHED_MASK, CU_CTX_SCHED_YIELD);
    INVALID(cuCtxGetFlags, NULL);
    OK(cuCtxGetApiVersion, ctx, &version);
    TRUE(version >= 3010);
    OK(cuCtxGetApiVersion, NULL, &version);
    INVALID(cuCtxGetApiVersion, ctx, NULL);
    OK(cuCtxGetId, ctx, &id);
    OK(cuCtxGetId, NULL, &other);
    SAME(other, id);
    OK(cuStreamGetCtx, NULL, &same);
    TRUE(same == ctx);
}

void api_case_contexts(void) {
    CUcontext a = NULL, b = NULL, popped = NULL, none = (CUcontext)7;

    OK(cuInit, 0);
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2, &popped);
    TRUE(popped == NULL);
    ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_v2, &none, 0, 9999);
    INVALID(cuCtxCreate_v2, &none, 0x10000, 0);
    INVALID(cuCtxCreate_v2, NULL, 0, 0);
    TRUE(none == (CUcontext)7);
    OK(cuCtxCreate_v2, &a, CU_CTX_SCHED_YIELD, 0);
    TRUE(top() == a);
    check_facts(a);
    OK(cuCtxCreate_v2, &b, 0, 0);
    TRUE(a != b && top() == b);
    OK(cuCtxPopCurrent_v2, &popped);
    TRUE(popped == b && top() == a);
    OK(cuCtxPushCurrent_v2, b);
    OK(cuCtxPushCurrent_v2, b);
    TRUE(top() == b);
    OK(cuCtxSetCurrent, a);
    TRUE(top() == a);
    OK(cuCtxPopCurrent_v2, NULL);
    TRUE(top() == b);
    OK(cuCtxPopCurrent_v2, &popped);
    TRUE(popped == b && top() == a);
    OK(cuCtxSetCurrent, NULL);
    TRUE(top() == NULL);
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize);
    OK(cuCtxPushCurrent_v2, a);
    OK(cuCtxSetCurrent, b);
    OK(cuCtxDestroy_v2, a);
    TRUE(top() == b);
    OK(cuCtxSynchronize);
    OK(cuCtxDestroy_v2, b);
    INVALID(cuCtxGetCurrent, NULL);
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize);
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent_v2, NULL);
}

void api_case_primary(void) {
    CUcontext a = NULL, b = NULL;
    CUdeviceptr p = 0;
    unsigned flags = 77;
    int active = 77;

    OK(cuInit, 0);
    OK(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    SAME(active, 0);
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2, 0);
    OK(cuDevicePrimaryCtxSetFlags_v2, 0, CU_CTX_SCHED_BLOCKING_SYNC);
    INVALID(cuDevicePrimaryCtxSetFlags_v2, 0, 0x10000);
    OK(cuDevicePrimaryCtxRetain, &a, 0);
    TRUE(a != NULL);
    OK(cuDevicePrimaryCtxRetain, &b, 0);
    TRUE(a == b);
    TRUE(top() == NULL);
    OK(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    SAME(active, 1);
    SAME(flags & CU_CTX_SCHED_MASK, CU_CTX_SCHED_BLOCKING_SYNC);
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2, a);
    OK(cuCtxSetCurrent, a);
    OK(cuMemAlloc_v2, &p, 4096);
    OK(cuDevicePrimaryCtxRelease_v2, 0);
    OK(cuMemsetD8_v2, p, 1, 4096);
    OK(cuDevicePrimaryCtxRelease_v2, 0);
    OK(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    SAME(active, 0);
    ANSWERS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc_v2, &p, 4096);
    ANSWERS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize);
    OK(cuDevicePrimaryCtxRetain, &a, 0);
    OK(cuCtxSetCurrent, a);
    OK(cuMemAlloc_v2, &p, 4096);
    OK(cuDevicePrimaryCtxReset_v2, 0);
    ANSWERS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemFree_v2, p);
    OK(cuDevicePrimaryCtxRetain, &a, 0);
    OK(cuCtxSetCurrent, a);
    OK(cuMemAlloc_v2, &p, 4096);
    ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRetain, &b, 9999);
    ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRelease_v2, 9999);
    ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxReset_v2, -1);
    ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxGetState, -1, &flags, &active);
    INVALID(cuDevicePrimaryCtxRetain, NULL, 0);
}

void api_case_limits(void) {
    size_t stack = 0, fifo = 0, heap = 0, value = 77;
    int least = 77, greatest = 77;
    CUfunc_cache cache = (CUfunc_cache)77;

    api_begin();
    OK(cuCtxGetLimit, &stack, CU_LIMIT_STACK_SIZE);
    TRUE(stack >= 512);
    OK(cuCtxGetLimit, &fifo, CU_LIMIT_PRINTF_FIFO_SIZE);
    TRUE(fifo > 0);
    OK(cuCtxGetLimit, &heap, CU_LIMIT_MALLOC_HEAP_SIZE);
    TRUE(heap > 0);
    OK(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 2048);
    OK(cuCtxGetLimit, &value, CU_LIMIT_STACK_SIZE);
    SAME(value, 2048);
    OK(cuCtxSetLimit, CU_LIMIT_PRINTF_FIFO_SIZE, 2 * MIB);
    OK(cuCtxGetLimit, &value, CU_LIMIT_PRINTF_FIFO_SIZE);
    TRUE(value >= 2 * MIB);
    value = 77;
    TRUE(CU(cuCtxGetLimit)(&value, (CUlimit)4242) != CUDA_SUCCESS);
    SAME(value, 77);
    INVALID(cuCtxGetLimit, NULL, CU_LIMIT_STACK_SIZE);
    OK(cuCtxGetStreamPriorityRange, &least, &greatest);
    SAME(least, 0);
    TRUE(greatest < 0);
    value = (size_t)greatest;
    OK(cuCtxGetStreamPriorityRange, NULL, &greatest);
    SAME(greatest, (int)value);
    OK(cuCtxGetStreamPriorityRange, &least, NULL);
    OK(cuCtxSetCacheConfig, CU_FUNC_CACHE_PREFER_L1);
    OK(cuCtxGetCacheConfig, &cache);
    SAME(cache, CU_FUNC_CACHE_PREFER_L1);
    INVALID(cuCtxGetCacheConfig, NULL);
    OK(cuCtxResetPersistingL2Cache);
}
