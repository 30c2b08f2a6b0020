/* Memory that a context takes and no call asks for: code, from when it is first needed, and the local
 * memory of all threads that the GPU can hold at once. */
#include "simgpu/cuda/context.h"

#include <stdlib.h>

#define BUFFER_MAX (UINT64_C(1) << 40)
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

/* What a context takes of them. */
struct needs {
    uint64_t code, local, heap, prints;
};

static struct needs needs_of(CUcontext ctx) {
    return (struct needs){ctx->code_bytes, ctx->local_bytes, ctx->heap_bytes, ctx->print_bytes};
}

static uint64_t sum(struct needs n) {
    return n.code + n.local + n.heap + n.prints;
}

static CUresult change(CUcontext ctx, struct needs n) {
    CUresult result = fit(ctx->device, ctx->device->grown_bytes - sum(needs_of(ctx)) + sum(n));

    if (result == CUDA_SUCCESS) {
        ctx->code_bytes = n.code;
        ctx->local_bytes = n.local;
        ctx->heap_bytes = n.heap;
        ctx->print_bytes = n.prints;
    }
    return result;
}

CUresult code_take(CUcontext ctx, int kernels) {
    sg_memory_lock();
    struct needs n = needs_of(ctx);
    n.code += (uint64_t)kernels * ctx->device->model->code_bytes;
    CUresult result = change(ctx, n);
    sg_memory_unlock();
    return result;
}

/* "The actual memory allocation for the heap occurs when a module is loaded into the context", says the
 * programming guide; the print buffer is taken likewise. */
CUresult code_needs(CUcontext ctx, bool heap, bool prints) {
    if (!heap && !prints) {
        return CUDA_SUCCESS;
    }
    sg_memory_lock();
    struct needs n = needs_of(ctx);
    n.heap = heap ? ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE] : n.heap;
    n.prints = prints ? ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE] : n.prints;
    CUresult result = change(ctx, n);
    sg_memory_unlock();
    return result;
}

/* Launches and questions read the limit without the lock. */
static void set_limit(CUcontext ctx, CUlimit limit, size_t value) {
    __atomic_store_n(&ctx->limits[limit], value, __ATOMIC_RELAXED);
}

/* Of one that is there the size changes at once. */
CUresult buffer_set(CUcontext ctx, CUlimit limit, size_t bytes) {
    SG_REQUIRE(bytes <= BUFFER_MAX, CUDA_ERROR_INVALID_VALUE);
    sg_memory_lock();
    struct needs n = needs_of(ctx);
    uint64_t *buffer = limit == CU_LIMIT_MALLOC_HEAP_SIZE ? &n.heap : &n.prints;
    *buffer = *buffer ? bytes : 0;
    CUresult result = change(ctx, n);
    if (result == CUDA_SUCCESS) {
        set_limit(ctx, limit, bytes);
    }
    sg_memory_unlock();
    return result;
}

static CUresult stack_to(CUcontext ctx, size_t bytes, bool raises) {
    int threads;

    SG_TRY(cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                                ctx->device->ordinal));
    uint64_t beyond = bytes > STACK_USUAL ? bytes - STACK_USUAL : 0;
    SG_REQUIRE(beyond <= 512u * 1024u, CUDA_ERROR_INVALID_VALUE);
    sg_memory_lock();
    struct needs n = needs_of(ctx);
    n.local = beyond * (uint64_t)threads * ctx->device->usable;
    bool there = raises && bytes <= ctx->limits[CU_LIMIT_STACK_SIZE];
    CUresult result = there ? CUDA_SUCCESS : change(ctx, n);
    if (result == CUDA_SUCCESS && !there) {
        set_limit(ctx, CU_LIMIT_STACK_SIZE, bytes);
    }
    sg_memory_unlock();
    return result;
}

CUresult stack_set(CUcontext ctx, size_t bytes) {
    return stack_to(ctx, bytes, false);
}

CUresult stack_raise(CUcontext ctx, size_t bytes) {
    return bytes > __atomic_load_n(&ctx->limits[CU_LIMIT_STACK_SIZE], __ATOMIC_RELAXED)
               ? stack_to(ctx, bytes, true)
               : CUDA_SUCCESS;
}

void code_end_context(CUcontext ctx) {
    change(ctx, (struct needs){0});
    if (ctx->device->grown_count == 0) {
        free(ctx->device->grown);
        ctx->device->grown = NULL;
    }
}
