/* Linear, pitched and managed memory. */
#include "cuda/attach.h"
#include "cuda/memory/blocks.h"
#include "cuda/memory/linear.h"
#include "cuda/memory/pool.h"
#include "cuda/memory/swap.h"
#include "share/residence.h"

/* Largest alignment of rows (CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT is smaller on every GPU).
 * Used only for what is reserved before the driver tells the pitch. */
#define PITCH_BYTES ((size_t)512)

/* The driver's own functions set the address that they answer with, and the pitch, to zero before
 * they look at anything else (470 to 555, before cuInit), and so do these. */

/* The driver has answered an allocation. Notes it, or frees it if that fails. */
static CUresult kept(struct reservation *reservation, CUresult result, CUdeviceptr got,
                     size_t bytes, CUdeviceptr *address) {
    if (result != CUDA_SUCCESS) {
        reservation_fail(reservation, result);
        return result;
    }
    if (!linear_keep(reservation, got, bytes)) {
        DV_CALL(cuMemFree_v2, got);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = got;
    return CUDA_SUCCESS;
}

/* Serves a reserved allocation. */
static inline CUresult alloc(struct reservation *reservation, CUdeviceptr *address, size_t bytes) {
    CUdeviceptr got = 0;
    CUresult result = DV_CALL(cuMemAlloc_v2, &got, bytes);
    return kept(reservation, result, got, bytes, address);
}

/* In a share that has turns or may be suspended. */
static __attribute__((noinline, cold)) CUresult alloc_turning(CUdeviceptr *address, size_t bytes) {
    struct reservation reservation;
    CUresult result = reservation_open(&reservation, blocks_worst(bytes));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return swaps() ? swap_alloc(&reservation, address, bytes) : alloc(&reservation, address, bytes);
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    struct reservation reservation;
    if (DV_INNER() || address == NULL || bytes == 0) {
        return DV_REAL(cuMemAlloc_v2)(address, bytes);
    }
    *address = 0;
    if (reservation_turns()) {
        return alloc_turning(address, bytes);
    }
    CUresult result = reservation_open_now(&reservation, blocks_worst(bytes));
    return result == CUDA_SUCCESS ? alloc(&reservation, address, bytes) : result;
}

/* Managed memory has no address of 32 bits, so in a swap share this memory is kept on the GPU. */
CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned bytes) {
    struct reservation reservation;
    CUdeviceptr_v1 got = 0;
    CUdeviceptr wide = 0;
    if (DV_INNER() || address == NULL || bytes == 0) {
        return DV_REAL(cuMemAlloc)(address, bytes);
    }
    *address = 0;
    CUresult result = reservation_open_kept(&reservation, blocks_worst(bytes));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = DV_CALL(cuMemAlloc, &got, bytes);
    result = kept(&reservation, result, got, bytes, &wide);
    if (result == CUDA_SUCCESS) {
        *address = got;
    }
    return result;
}

/* Bytes of so many rows of this width, before the pitch is known. A product that does not fit into
 * 64 bits is above any limit. */
static uint64_t worst_pitched(size_t width, size_t height) {
    size_t bytes;
    if (width > SIZE_MAX - PITCH_BYTES ||
        __builtin_mul_overflow((width + PITCH_BYTES - 1) & ~(PITCH_BYTES - 1), height, &bytes)) {
        return UINT64_MAX;
    }
    return blocks_worst(bytes);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                            unsigned element) {
    struct reservation reservation;
    CUdeviceptr got = 0;
    size_t got_pitch = 0;
    if (DV_INNER() || address == NULL || pitch == NULL || width == 0 || height == 0) {
        return DV_REAL(cuMemAllocPitch_v2)(address, pitch, width, height, element);
    }
    *address = 0;
    *pitch = 0;
    CUresult result = reservation_open(&reservation, worst_pitched(width, height));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (swaps()) {
        return swap_alloc_pitch(&reservation, address, pitch, width, height, element);
    }
    result = DV_CALL(cuMemAllocPitch_v2, &got, &got_pitch, width, height, element);
    result = kept(&reservation, result, got, got_pitch * height, address);
    if (result == CUDA_SUCCESS) {
        *pitch = got_pitch;
    }
    return result;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned *pitch, unsigned width, unsigned height,
                         unsigned element) {
    struct reservation reservation;
    CUdeviceptr_v1 got = 0;
    CUdeviceptr wide = 0;
    unsigned got_pitch = 0;
    if (DV_INNER() || address == NULL || pitch == NULL || width == 0 || height == 0) {
        return DV_REAL(cuMemAllocPitch)(address, pitch, width, height, element);
    }
    *address = 0;
    *pitch = 0;
    CUresult result = reservation_open_kept(&reservation, worst_pitched(width, height));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = DV_CALL(cuMemAllocPitch, &got, &got_pitch, width, height, element);
    result = kept(&reservation, result, got, (size_t)got_pitch * height, &wide);
    if (result == CUDA_SUCCESS) {
        *address = got;
        *pitch = got_pitch;
    }
    return result;
}

/* Managed memory is charged for its whole range, because its pages come to the GPU one by one
 * without a call that could be refused. */
CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) {
    struct reservation reservation;
    CUdeviceptr got = 0;
    if (DV_INNER() || address == NULL || bytes == 0) {
        return DV_REAL(cuMemAllocManaged)(address, bytes, flags);
    }
    *address = 0;
    CUresult result = reservation_open(&reservation, blocks_worst(bytes));
    if (result == CUDA_ERROR_NOT_INITIALIZED) {
        /* It looks at the flags first. This thread has no context to allocate in. */
        return DV_REAL(cuMemAllocManaged)(address, bytes, flags);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = DV_CALL(cuMemAllocManaged, &got, bytes, flags);
    if (swaps()) {
        struct swapped memory = {.address = got, .bytes = bytes};
        return swap_made(&reservation, result, &memory, address);
    }
    dv_present_unsaved(attached_share(), DV_PAGE_UNSAVED_MANAGED);
    return kept(&reservation, result, got, bytes, address);
}

/* The driver has answered the free of an allocation that was taken out. */
static CUresult freed(CUresult result, const struct freeing *freeing) {
    if (result == CUDA_SUCCESS) {
        linear_freed(freeing);
    } else {
        linear_put_back(freeing);
    }
    return result;
}

/* Memory of a pool goes back to the pool, which may give it back to the GPU at once. */
static CUresult freed_to_pool(CUresult result, CUdeviceptr address, struct entry note) {
    if (result == CUDA_SUCCESS) {
        pool_freed(note);
        pools_synchronised();
    } else {
        pool_put_back(address, note);
    }
    return result;
}

/* An address in neither table may be imported or external memory, or invalid. The driver
   decides. */
static inline __attribute__((always_inline)) CUresult free_any(CUdeviceptr address) {
    struct freeing freeing;
    struct entry note;
    if (linear_is_counted(address) && !pools_have_pointers()) {
        CUresult result = DV_CALL(cuMemFree_v2, address);
        if (result == CUDA_SUCCESS) {
            linear_counted_freed(address);
        }
        return result;
    }
    if (linear_take(address, &freeing)) {
        return freed(DV_CALL(cuMemFree_v2, address), &freeing);
    }
    if (pool_take(address, &note)) {
        return freed_to_pool(DV_CALL(cuMemFree_v2, address), address, note);
    }
    return DV_REAL(cuMemFree_v2)(address);
}

/* Is taken from the list first, because another thread may get the address at once. */
static CUresult free_swapped(CUdeviceptr address) {
    struct swapped memory;
    bool listed = swapped_take(address, &memory);
    CUresult result = listed && memory.ending ? CUDA_ERROR_INVALID_VALUE : free_any(address);
    if (listed && result != CUDA_SUCCESS) {
        swapped_add(&memory);
    }
    return result;
}

/* While the share is suspended the driver would block the call, where the agent does not see it. */
static __attribute__((noinline, cold)) CUresult free_turning(CUdeviceptr address) {
    reservation_wanted();
    return swaps() ? free_swapped(address) : free_any(address);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    if (DV_INNER()) {
        return DV_REAL(cuMemFree_v2)(address);
    }
    return reservation_turns() ? free_turning(address) : free_any(address);
}

CUresult cuMemFree(CUdeviceptr_v1 address) {
    struct freeing freeing;
    if (!DV_INNER() && linear_take(address, &freeing)) {
        return freed(DV_CALL(cuMemFree, address), &freeing);
    }
    return DV_REAL(cuMemFree)(address);
}
