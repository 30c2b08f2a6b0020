/* Memory that a context takes and no call asks for: code, from when it is first needed, and the local
 * memory of all threads that the GPU can hold at once. */
#include "simgpu/cuda/context.h"

#include <stdlib.h>

#define STACK_USUAL 1024u /* its local memory is in what a context takes from the start */

/* Makes the device's blocks as many as its contexts need. The memory lock. */
static CUresult fit(struct device *device, uint64_t bytes) {
    uint32_t wanted = (uint32_t)((bytes + SG_BLOCK_BYTES - 1) / SG_BLOCK_BYTES);

    if (wanted > device->grown_count) {
        uint32_t *grown = realloc(device->grown, wanted * sizeof *grown);
        if (!grown) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        device->grown = grown;
        SG_TRY(blocks_take(device, SG_CONTEXT, wanted - device->grown_count,
                           grown + device->grown_count));
    } else if (wanted < device->grown_count) {
        blocks_return(device, device->grown_count - wanted, device->grown + wanted);
    }
    device->grown_count = wanted;
    device->grown_bytes = bytes;
    return CUDA_SUCCESS;
}

static CUresult change(CUcontext ctx, uint64_t code, uint64_t local) {
    uint64_t others = ctx->device->grown_bytes - ctx->code_bytes - ctx->local_bytes;
    CUresult result = fit(ctx->device, others + code + local);

    if (result == CUDA_SUCCESS) {
        ctx->code_bytes = code;
        ctx->local_bytes = local;
    }
    return result;
}

CUresult code_take(CUcontext ctx, int kernels) {
    sg_memory_lock();
    uint64_t code = ctx->code_bytes + (uint64_t)kernels * ctx->device->model->code_bytes;
    CUresult result = change(ctx, code, ctx->local_bytes);
    sg_memory_unlock();
    return result;
}

CUresult stack_set(CUcontext ctx, size_t bytes) {
    int threads;

    SG_TRY(cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                                ctx->device->ordinal));
    uint64_t beyond = bytes > STACK_USUAL ? bytes - STACK_USUAL : 0;
    SG_REQUIRE(beyond <= 512u * 1024u, CUDA_ERROR_INVALID_VALUE);
    sg_memory_lock();
    CUresult result = change(ctx, ctx->code_bytes,
                             beyond * (uint64_t)threads * ctx->device->model->multiprocessors);
    if (result == CUDA_SUCCESS) {
        ctx->limits[CU_LIMIT_STACK_SIZE] = bytes;
    }
    sg_memory_unlock();
    return result;
}

void code_end_context(CUcontext ctx) {
    change(ctx, 0, 0);
    if (ctx->device->grown_count == 0) {
        free(ctx->device->grown);
        ctx->device->grown = NULL;
    }
}
