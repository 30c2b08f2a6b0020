/*
 * Stream-ordered memory and the pools it comes from.
 *
 * Nothing here waits for a stream. While a stream is captured, its allocations and frees become
 * nodes of a graph. Nothing is charged then: the graph takes memory when it is instantiated or
 * launched (graph.c).
 */
#include "cuda/attach.h"
#include "cuda/device.h"
#include "cuda/memory/blocks.h"
#include "cuda/memory/graph.h"
#include "cuda/memory/limbo.h"
#include "cuda/memory/linear.h"
#include "cuda/memory/pool.h"
#include "cuda/memory/swap.h"
#include "cuda/stream.h"

/* If the driver does not know a pool, the call is refused, because it would not tell what an
 * allocation from it takes either. Before cuInit it knows none. */
static CUresult open_pool(struct pool *pool, struct reservation *reservation, size_t bytes) {
    if (pool != NULL) {
        return pool_open(pool, reservation, bytes);
    }
    CUresult result = reservation_why_unknown();
    return result == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_INVALID_VALUE : result;
}

/* The current pool of the stream's GPU, which cuMemAllocAsync takes from. */
static CUresult open_current_pool(CUstream stream, struct pool **pool,
                                  struct reservation *reservation, size_t bytes) {
    struct home home;
    CUdevice device = 0;
    if (attach_share() != CUDA_SUCCESS) {
        return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    /* Before cuInit there is no stream to ask about: 555 crashes with a handle that is none. */
    if (device_number(0) < 0 && reservation_why_unknown() == CUDA_ERROR_NOT_INITIALIZED) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    CUresult result = stream_home(stream, &home);
    if (result == CUDA_SUCCESS && !device_of_number(home.device, &device)) {
        result = CUDA_ERROR_INVALID_DEVICE;
    }
    if (result == CUDA_SUCCESS) {
        result = pool_current(pool, device, home.device);
    }
    return result == CUDA_SUCCESS ? open_pool(*pool, reservation, bytes) : result;
}

static CUresult open_given_pool(CUmemoryPool handle, struct pool **pool,
                                struct reservation *reservation, size_t bytes) {
    if (attach_share() != CUDA_SUCCESS) {
        return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    *pool = pool_find(handle);
    return open_pool(*pool, reservation, bytes);
}

/* The driver has answered an allocation out of a pool. */
static CUresult kept(struct pool *pool, struct reservation *reservation, CUresult result,
                     CUdeviceptr got, CUstream stream, CUdeviceptr *address) {
    if (result != CUDA_SUCCESS) {
        reservation_fail(reservation, result);
        return result;
    }
    result = pool_keep(pool, reservation, got);
    if (result != CUDA_SUCCESS) {
        DV_CALL(cuMemFreeAsync, got, stream);
        return result;
    }
    *address = got;
    return CUDA_SUCCESS;
}

static CUresult freed_to_pool(CUresult result, CUdeviceptr address, struct entry note) {
    if (result == CUDA_SUCCESS) {
        pool_freed(note);
    } else {
        pool_put_back(address, note);
    }
    return result;
}

/* Memory that is not of a pool stays until the stream gets to the free. */
static CUresult freed_in_order(CUresult result, CUdeviceptr address, struct entry note,
                               CUstream stream) {
    if (result == CUDA_SUCCESS) {
        limbo_enter(address, note, stream);
    }
    return result;
}

/* The handle under which the free is noted. Other threads cannot ask about a per-thread default
 * stream. */
#define DEFAULT(stream) (stream)
#define DEFAULT_ptsz(stream) ((stream) != NULL ? (stream) : CU_STREAM_PER_THREAD)

/* The two ways to allocate and the one to free, for both meanings of the default stream. */
#define STREAM_ORDERED(suffix)                                                                     \
    CUresult cuMemAllocAsync##suffix(CUdeviceptr *address, size_t bytes, CUstream stream) {        \
        struct reservation reservation;                                                            \
        struct pool *pool;                                                                         \
        CUdeviceptr got = 0;                                                                       \
        if (DV_INNER() || address == NULL || bytes == 0 || stream_captured##suffix(stream)) {      \
            graph_memory_used();                                                                   \
            return DV_REAL(cuMemAllocAsync##suffix)(address, bytes, stream);                       \
        }                                                                                          \
        *address = 0;                                                                              \
        CUresult result = open_current_pool(stream, &pool, &reservation, bytes);                   \
        if (result == CUDA_SUCCESS) {                                                              \
            result = DV_CALL(cuMemAllocAsync##suffix, &got, bytes, stream);                        \
            result = kept(pool, &reservation, result, got, stream, address);                       \
        }                                                                                          \
        return result;                                                                             \
    }                                                                                              \
                                                                                                   \
    CUresult cuMemAllocFromPoolAsync##suffix(CUdeviceptr *address, size_t bytes,                   \
                                             CUmemoryPool handle, CUstream stream) {               \
        struct reservation reservation;                                                            \
        struct pool *pool;                                                                         \
        CUdeviceptr got = 0;                                                                       \
        if (DV_INNER() || address == NULL || bytes == 0 || stream_captured##suffix(stream)) {      \
            graph_memory_used();                                                                   \
            return DV_REAL(cuMemAllocFromPoolAsync##suffix)(address, bytes, handle, stream);       \
        }                                                                                          \
        *address = 0;                                                                              \
        CUresult result = open_given_pool(handle, &pool, &reservation, bytes);                     \
        if (result == CUDA_SUCCESS) {                                                              \
            result = DV_CALL(cuMemAllocFromPoolAsync##suffix, &got, bytes, handle, stream);        \
            result = kept(pool, &reservation, result, got, stream, address);                       \
        }                                                                                          \
        return result;                                                                             \
    }                                                                                              \
                                                                                                   \
    CUresult cuMemFreeAsync##suffix(CUdeviceptr address, CUstream stream) {                        \
        struct entry note;                                                                         \
        if (DV_INNER() || stream_captured##suffix(stream)) {                                       \
            return DV_REAL(cuMemFreeAsync##suffix)(address, stream);                               \
        }                                                                                          \
        if (pool_take(address, &note)) {                                                           \
            CUresult result = DV_CALL(cuMemFreeAsync##suffix, address, stream);                    \
            return freed_to_pool(result, address, note);                                           \
        }                                                                                          \
        if (address != 0 && linear_find(address, &note)) {                                         \
            CUresult result = DV_CALL(cuMemFreeAsync##suffix, address, stream);                    \
            if (swaps()) {                                                                         \
                result = swap_free_async(result, address, DEFAULT##suffix(stream));                \
            }                                                                                      \
            return freed_in_order(result, address, note, DEFAULT##suffix(stream));                 \
        }                                                                                          \
        return DV_REAL(cuMemFreeAsync##suffix)(address, stream);                                   \
    }

STREAM_ORDERED()
STREAM_ORDERED(_ptsz)

/* The number in the share of the GPU from which the pool takes memory, -1 if it takes none. A
 * managed pool is charged on the GPU of the current context, because its memory may come to any
 * GPU. */
static int pool_device(const CUmemPoolProps *props) {
    struct home home;
    if (props->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        return device_number(props->location.id);
    }
    bool managed = props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    return managed && context_current(&home) == CUDA_SUCCESS ? (int)home.device : -1;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props) {
    CUresult result = DV_CALL(cuMemPoolCreate, pool, props);
    if (result == CUDA_SUCCESS && !DV_INNER() && attach_share() == CUDA_SUCCESS) {
        int number = pool_device(props);
        pool_note(*pool, number >= 0 ? (unsigned)number : 0, number >= 0);
    }
    return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    struct pool *pool = !DV_INNER() ? pool_ending(handle) : NULL;
    CUresult result = DV_CALL(cuMemPoolDestroy, handle);
    if (pool != NULL) {
        pool_ended(pool, handle, result == CUDA_SUCCESS);
    }
    return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
    CUresult result = DV_CALL(cuMemPoolTrimTo, handle, keep);
    if (result == CUDA_SUCCESS && !DV_INNER()) {
        pool_reread(handle);
    }
    return result;
}

/* The memory of an imported pool is charged to the process that made it. What is imported from it
 * is charged here too, because nobody can tell whether that process still lives. */
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags) {
    CUresult result = DV_CALL(cuMemPoolImportFromShareableHandle, pool, handle, type, flags);
    if (result == CUDA_SUCCESS && !DV_INNER()) {
        pool_note(*pool, 0, false);
    }
    return result;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool,
                                CUmemPoolPtrExportData *data) {
    struct reservation reservation;
    CUdevice device = 0;
    CUdeviceptr got = 0, base = 0;
    size_t bytes = 0;
    if (DV_INNER() || address == NULL || attach_share() != CUDA_SUCCESS) {
        return DV_REAL(cuMemPoolImportPointer)(address, pool, data);
    }
    CUresult result = DV_CALL(cuMemPoolImportPointer, &got, pool, data);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = DV_CALL(cuMemGetAddressRange_v2, &base, &bytes, got);
    if (result == CUDA_SUCCESS) {
        result = DV_CALL(cuPointerGetAttribute, &device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, got);
    }
    if (result == CUDA_SUCCESS) {
        result = reservation_open_on(&reservation, device, blocks_worst(bytes));
    }
    if (result != CUDA_SUCCESS || !linear_keep(&reservation, got, bytes)) {
        DV_CALL(cuMemFree_v2, got);
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = got;
    return CUDA_SUCCESS;
}
