/* Attributes of a context: limits, flags, peers, versions. */
#include "simgpu/cuda/driver.h"

CUresult cuCtxGetDevice(CUdevice *device) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(device, CUDA_ERROR_INVALID_VALUE);
    *device = ctx->device->ordinal;
    return CUDA_SUCCESS;
}

/* The context that was named, or the current one for NULL. */
static CUresult named(CUcontext ctx, CUcontext *out) {
    SG_READY();
    *out = ctx ? ctx : sg_current();
    return (ctx ? sg_context_given(ctx) : sg_context_usable(*out)) ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx) {
    SG_TRY(named(ctx, &ctx));
    SG_REQUIRE(device, CUDA_ERROR_INVALID_VALUE);
    *device = ctx->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version) {
    SG_TRY(named(ctx, &ctx));
    SG_REQUIRE(version, CUDA_ERROR_INVALID_VALUE);
    *version = ctx->api_version;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id) {
    SG_REQUIRE(id, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(named(ctx, &ctx));
    *id = ctx->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags) {
    SG_REQUIRE(flags, CUDA_ERROR_INVALID_VALUE);
    SG_ENTER(ctx, SG_FAULT_OTHER)
    *flags = ctx->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(!(flags & ~(unsigned)CU_CTX_FLAGS_MASK), CUDA_ERROR_INVALID_VALUE);
    ctx->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(value, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE((unsigned)limit <= CU_LIMIT_SHMEM_SIZE, CUDA_ERROR_UNSUPPORTED_LIMIT);
    *value = __atomic_load_n(&ctx->limits[limit], __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE((unsigned)limit <= CU_LIMIT_PERSISTING_L2_CACHE_SIZE, CUDA_ERROR_UNSUPPORTED_LIMIT);
    if (limit == CU_LIMIT_STACK_SIZE) {
        return stack_set(ctx, value);
    }
    if (limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE) {
        return buffer_set(ctx, limit, value);
    }
    ctx->limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(config, CUDA_ERROR_INVALID_VALUE);
    *config = ctx->cache_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE((unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL, CUDA_ERROR_INVALID_VALUE);
    ctx->cache_config = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(config, CUDA_ERROR_INVALID_VALUE);
    *config = ctx->shared_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE((unsigned)config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE,
               CUDA_ERROR_INVALID_VALUE);
    ctx->shared_config = config;
    return CUDA_SUCCESS;
}

/* Lower numbers come first: 0 to -5 on the GPUs that machine files describe. */
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    if (least) {
        *least = 0;
    }
    if (greatest) {
        *greatest = -5;
    }
    return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *affinity, CUexecAffinityType type) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(affinity, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(type == CU_EXEC_AFFINITY_TYPE_SM_COUNT, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    affinity->type = type;
    affinity->param.smCount.val = ctx->device->usable;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    SG_ENTER(ctx, SG_FAULT_WORK)
    SG_TRY(capture_allows(ctx));
    return sg_drain_context(ctx);
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
    SG_GATE();
    SG_TRY(named(ctx, &ctx));
    SG_TRY(capture_allows(ctx));
    return sg_drain_context(ctx);
}

/* Peer access. */

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(sg_context_given(peer) && peer != ctx, CUDA_ERROR_INVALID_CONTEXT);
    SG_REQUIRE(peer->device != ctx->device && sg_can_access(ctx->device->gpu, peer->device->gpu),
               CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    uint64_t bit = UINT64_C(1) << peer->device->ordinal;
    SG_REQUIRE(!(ctx->peers & bit), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    ctx->peers |= bit;
    return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(sg_context_given(peer), CUDA_ERROR_INVALID_CONTEXT);
    uint64_t bit = UINT64_C(1) << peer->device->ordinal;
    SG_REQUIRE(ctx->peers & bit, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    ctx->peers &= ~bit;
    return CUDA_SUCCESS;
}
