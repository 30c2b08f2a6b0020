/* Contexts: creation and end. Primary contexts are in primary.c. */
#include "simgpu/cuda/context.h"

#include <stdlib.h>

static CUresult take_overhead(struct device *device) {
    uint32_t count =
        (uint32_t)((device->model->context_bytes + SG_BLOCK_BYTES - 1) / SG_BLOCK_BYTES);

    device->overhead = malloc((count ? count : 1) * sizeof *device->overhead);
    if (!device->overhead) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = blocks_take(device, SG_CONTEXT, count, device->overhead);
    if (result == CUDA_SUCCESS) {
        device->overhead_count = count;
        return CUDA_SUCCESS;
    }
    free(device->overhead);
    device->overhead = NULL;
    return result;
}

static void give_overhead(struct device *device) {
    blocks_return(device, device->overhead_count, device->overhead);
    free(device->overhead);
    device->overhead = NULL;
    device->overhead_count = 0;
}

/* Counts one context more, if the GPU's compute mode allows it. */
static CUresult admit_context(struct device *device) {
    struct sg_instance *in = &sg_driver.instance;

    SG_TRY(mps_result(device->gpu));
    sg_state_lock(in);
    bool admitted = sg_admits_context(in, device->gpu);
    if (admitted) {
        in->state->clients[in->id].contexts[device->gpu] = ++device->contexts;
    }
    sg_state_unlock(in);
    return admitted ? CUDA_SUCCESS : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

static void discount_context(struct device *device) {
    struct sg_instance *in = &sg_driver.instance;

    sg_state_lock(in);
    in->state->clients[in->id].contexts[device->gpu] = --device->contexts;
    sg_state_unlock(in);
}

static void set_limits(CUcontext ctx) {
    ctx->limits[CU_LIMIT_STACK_SIZE] = 1024;
    ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1u << 20;
    ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8u << 20;
    ctx->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    ctx->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    ctx->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

CUresult context_begin(CUcontext ctx, struct device *device, unsigned flags) {
    sg_memory_lock();
    CUresult result = admit_context(device);
    if (result == CUDA_SUCCESS && device->contexts == 1 &&
        (result = take_overhead(device)) != CUDA_SUCCESS) {
        discount_context(device);
    }
    sg_memory_unlock();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    ctx->device = device;
    ctx->flags = flags;
    ctx->api_version = 3020;
    ctx->id = sg_new_id();
    ctx->fault = CUDA_SUCCESS;
    ctx->peers = 0;
    ctx->cache_config = CU_FUNC_CACHE_PREFER_NONE;
    ctx->shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    ctx->heap = heap_new(SG_GRANULE);
    ctx->variables = heap_new(SG_GRANULE);
    link_init(&ctx->ranges);
    link_init(&ctx->streams);
    link_init(&ctx->events);
    link_init(&ctx->modules);
    link_init(&ctx->arrays);
    link_init(&ctx->mipmaps);
    set_limits(ctx);
    sg_memory_lock();
    ctx->active = true;
    link_add(&sg_driver.contexts, &ctx->of_process);
    sg_memory_unlock();
    if (!ctx->heap || !ctx->variables || streams_start(ctx) != CUDA_SUCCESS) {
        context_finish(ctx);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

void context_finish(CUcontext ctx) {
    struct device *device = ctx->device;

    sg_drain_context(ctx);
    streams_end_context(ctx);
    events_end_context(ctx);
    modules_end_context(ctx);
    libraries_end_context(ctx);
    sg_memory_lock();
    ctx->active = false;
    link_remove(&ctx->of_process);
    arrays_end_context(ctx);
    host_end_context(ctx);
    while (ctx->ranges.next != &ctx->ranges) {
        range_end(CONTAINER(ctx->ranges.next, struct range, of_context));
    }
    code_end_context(ctx);
    heap_end(ctx->heap);
    heap_end(ctx->variables);
    ctx->heap = ctx->variables = NULL;
    discount_context(device);
    if (device->contexts == 0) {
        give_overhead(device);
    }
    sg_memory_unlock();
}

static CUresult create(CUcontext *out, unsigned flags, CUdevice ordinal, unsigned version) {
    SG_READY();
    struct device *device = sg_device(ordinal);
    SG_REQUIRE(out && !(flags & ~(unsigned)CU_CTX_FLAGS_MASK), CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(device, CUDA_ERROR_INVALID_DEVICE);
    SG_TRY(
        (CUresult)sg_fault_answer(&sg_driver.instance, device->gpu, SG_FAULT_ALLOC, "cuCtxCreate"));
    CUcontext ctx = handle_new(HANDLE_CONTEXT, sizeof *ctx);
    if (!ctx) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = context_begin(ctx, device, flags);
    if (result == CUDA_SUCCESS && (result = current_push(ctx)) != CUDA_SUCCESS) {
        context_finish(ctx);
    }
    if (result != CUDA_SUCCESS) {
        handle_end(ctx, HANDLE_CONTEXT);
        return result;
    }
    ctx->api_version = version;
    ctx->attach_count = 1;
    *out = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice device) {
    return create(ctx, flags, device, 3010);
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice device) {
    return create(ctx, flags, device, 3020);
}

/* Restricting a context to some multiprocessors would change only time, which is simulated for the
 * whole GPU. */
CUresult cuCtxCreate_v3(CUcontext *ctx, CUexecAffinityParam *affinity, int count,
                        unsigned int flags, CUdevice device) {
    SG_REQUIRE(count >= 0 && (count == 0 || affinity), CUDA_ERROR_INVALID_VALUE);
    return create(ctx, flags, device, 3020);
}

CUresult cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *params, unsigned int flags,
                        CUdevice device) {
    (void)params;
    return create(ctx, flags, device, 3020);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
    SG_REQUIRE(ctx, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    SG_REQUIRE(sg_context_given(ctx) && !ctx->is_primary, CUDA_ERROR_INVALID_CONTEXT);
    context_finish(ctx);
    current_leave(ctx);
    handle_end(ctx, HANDLE_CONTEXT);
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext ctx) {
    return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxAttach(CUcontext *out, unsigned int flags) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(out && flags == 0, CUDA_ERROR_INVALID_VALUE);
    ctx->attach_count++;
    *out = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx) {
    SG_READY();
    SG_REQUIRE(sg_context_given(ctx) && ctx == sg_current(), CUDA_ERROR_INVALID_CONTEXT);
    if (ctx->is_primary || --ctx->attach_count > 0) {
        return CUDA_SUCCESS;
    }
    return cuCtxDestroy_v2(ctx);
}
