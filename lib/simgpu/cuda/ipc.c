/* Memory of one process in another: the 64-byte handles, and pools.
 *
 * What is exported is the whole block or allocation that holds the pointer; the handle tells where
 * in it. An importer keeps the memory alive when the exporter frees it or dies. */
#define _GNU_SOURCE
#include "simgpu/cuda/pool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libc/kernel.h"

#define TOKEN_MAGIC 0x5347495043484e44ull

/* The contents of a handle; 64 bytes. */
struct token {
    uint64_t magic;
    uint64_t key;
    uint32_t object;
    uint32_t pad;
    uint64_t offset; /* of the pointer in the object */
    uint64_t bytes;  /* of the allocation */
    uint64_t reserved[3];
};
_Static_assert(sizeof(struct token) == CU_IPC_HANDLE_SIZE, "token");
_Static_assert(sizeof(struct token) == sizeof(CUmemPoolPtrExportData), "token");

/* Finds the allocation at the address and makes its range an object. The memory lock. */
static CUresult make_token(CUdeviceptr address, bool from_pool, struct token *token) {
    struct range *range = range_of(address);
    CUdeviceptr base;
    uint64_t bytes;

    SG_REQUIRE(range && (from_pool ? range->kind == RANGE_CHUNK
                                   : range->kind == RANGE_SMALL || range->kind == RANGE_OWN),
               CUDA_ERROR_INVALID_VALUE);
    if (range->region) {
        SG_REQUIRE(heap_find(range->region, address, &base, &bytes), CUDA_ERROR_INVALID_VALUE);
    } else {
        base = range->base;
        bytes = range->requested;
    }
    *token = (struct token){.magic = TOKEN_MAGIC, .offset = base - range->base, .bytes = bytes};
    SG_TRY(blocks_share(range->device, range->count, range->blocks, &range->object, &token->key));
    token->object = (uint32_t)range->object;
    return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    struct token token;

    SG_REQUIRE(handle, CUDA_ERROR_INVALID_VALUE);
    SG_ENTER(ctx, SG_FAULT_OTHER)
    sg_memory_lock();
    CUresult result = make_token(address, false, &token);
    sg_memory_unlock();
    if (result == CUDA_SUCCESS) {
        memcpy(handle->reserved, &token, sizeof token);
    }
    return result;
}

static struct range *opened(CUcontext ctx, uint32_t object) {
    for (struct link *at = ctx->ranges.next; at != &ctx->ranges; at = at->next) {
        struct range *range = CONTAINER(at, struct range, of_context);
        if (range->kind == RANGE_IMPORT && range->object == object && !range->pool) {
            return range;
        }
    }
    return NULL;
}

/* Holds the object of a token and maps it. The memory lock. */
static CUresult map_token(CUcontext ctx, const struct token *token, struct range **out) {
    uint32_t gpu, count, *blocks;
    uint64_t size;

    SG_REQUIRE(token->magic == TOKEN_MAGIC, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(object_hold(token->object, token->key, &gpu, &size, &count, &blocks));
    struct device *device = sg_device_of_gpu(gpu);
    CUresult result = CUDA_ERROR_INVALID_DEVICE;
    if (token->offset >= size || token->bytes > size - token->offset) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (device) {
        result = range_import(device, ctx, token->object, count, blocks, out);
    }
    free(blocks);
    if (result != CUDA_SUCCESS) {
        object_drop(token->object);
    } else {
        (*out)->requested = token->bytes;
    }
    return result;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags) {
    CUresult result = CUDA_SUCCESS;
    struct token token;

    SG_REQUIRE(out, CUDA_ERROR_INVALID_VALUE);
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(!(flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_VALUE);
    memcpy(&token, handle.reserved, sizeof token);
    SG_REQUIRE(token.magic == TOKEN_MAGIC && token.object < SG_OBJECTS_MAX,
               CUDA_ERROR_INVALID_VALUE);
    sg_memory_lock();
    /* A process cannot open its own memory; what it opened already is the same pointer again. */
    struct range *range = opened(ctx, token.object);
    if (range) {
        range->opens++;
    } else if (object_is_own(token.object)) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else {
        result = map_token(ctx, &token, &range);
    }
    if (result == CUDA_SUCCESS) {
        *out = range->base + token.offset;
    }
    sg_memory_unlock();
    return result;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags) {
    return cuIpcOpenMemHandle_v2(out, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    if (__atomic_load_n(&ctx->deferred, __ATOMIC_ACQUIRE)) {
        SG_TRY(sg_drain_context(ctx));
    }
    sg_memory_lock();
    struct range *range = range_of(address);
    bool open = range && range->kind == RANGE_IMPORT && !range->pool;
    if (open && --range->opens == 0) {
        range_end(range);
    }
    sg_memory_unlock();
    return open ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- pools: the descriptor tells where the pool is; each pointer carries its memory ---- */

struct pool_token {
    uint64_t magic;
    uint32_t gpu;
    uint32_t exporter;
};

CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool pool,
                                          CUmemAllocationHandleType type,
                                          unsigned long long flags) {
    SG_READY();
    SG_REQUIRE(out && flags == 0 && handle_given(pool, HANDLE_POOL) &&
                   type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
                   pool->props.handleTypes == type && !pool->imported,
               CUDA_ERROR_INVALID_VALUE);
    struct pool_token token = {TOKEN_MAGIC, pool->device->gpu, sg_driver.instance.id};
    int fd = kernel_memfd_create("simgpu-pool", MFD_CLOEXEC);
    if (fd < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (write(fd, &token, sizeof token) != (ssize_t)sizeof token) {
        close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *os_handle,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags) {
    struct pool_token token;

    SG_READY();
    SG_REQUIRE(out && flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
               CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(pread((int)(intptr_t)os_handle, &token, sizeof token, 0) == (ssize_t)sizeof token &&
                   token.magic == TOKEN_MAGIC,
               CUDA_ERROR_INVALID_VALUE);
    struct device *device = sg_device_of_gpu(token.gpu);
    SG_REQUIRE(device, CUDA_ERROR_INVALID_DEVICE);
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal}};
    sg_memory_lock();
    CUmemoryPool pool = pool_new(device, &props);
    if (pool) {
        pool->imported = true;
    }
    sg_memory_unlock();
    if (!pool) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = pool;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address) {
    struct token token;

    SG_READY();
    SG_REQUIRE(data, CUDA_ERROR_INVALID_VALUE);
    sg_memory_lock();
    CUresult result = make_token(address, true, &token);
    sg_memory_unlock();
    if (result == CUDA_SUCCESS) {
        memcpy(data->reserved, &token, sizeof token);
    }
    return result;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool pool, CUmemPoolPtrExportData *data) {
    struct token token;
    struct range *range;

    SG_READY();
    SG_REQUIRE(out && data && handle_given(pool, HANDLE_POOL) && pool->imported,
               CUDA_ERROR_INVALID_VALUE);
    memcpy(&token, data->reserved, sizeof token);
    sg_memory_lock();
    CUresult result = map_token(NULL, &token, &range);
    if (result == CUDA_SUCCESS) {
        range->pool = pool;
        *out = range->base + token.offset;
    }
    sg_memory_unlock();
    return result;
}
