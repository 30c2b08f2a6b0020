/* Allocations: the worker makes them, and the client keeps where they are, and lets nothing else be there. */
#include "remote/client/client.h"
#include "remote/generated/cuda_stubs.h"

/* So many addresses in a row that mean something else in the client are refused. They are kept until one is accepted,
 * because the driver would give them again. */
#define MOST_REFUSED 16

/* What is asked for, and how. */
struct want {
    CUresult (*make)(struct want *want, CUdeviceptr *address);
    void (*unmake)(const struct want *want, CUdeviceptr address);
    size_t size; /* in bytes; of a pitched allocation after it was made */
    size_t width, height, pitch;
    unsigned element;
    size_t align;
    CUdeviceptr wish;
    unsigned long long flags;
    CUstream stream;
    CUmemoryPool pool;
    bool per_thread; /* the variant for the default stream of each thread */
    enum remote_range_kind kind;
};

/* Makes it, as often as its address means something else already. */
static CUresult make(struct want *want, CUdeviceptr *to) {
    CUdeviceptr refused[MOST_REFUSED], address = 0;
    unsigned count = 0;
    CUresult result;

    while ((result = want->make(want, &address)) == CUDA_SUCCESS) {
        const struct remote_range range = {
            .start = address,
            .size = want->size,
            .context = want->kind == REMOTE_RANGE_LINEAR ? remote_current() : 0,
            .pool = (uint64_t)want->pool,
            .kind = want->kind,
        };
        if (remote_range_add(&range)) {
            *to = address;
            break;
        }
        refused[count++] = address;
        address = 0;
        if (count == MOST_REFUSED) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
            break;
        }
    }
    /* It was made, and the call tells of an earlier failure. */
    if (result != CUDA_SUCCESS && address && count < MOST_REFUSED) {
        refused[count++] = address;
    }
    while (count) {
        want->unmake(want, refused[--count]);
    }
    return result;
}

static void unmake_linear(const struct want *want, CUdeviceptr address) {
    (void)want;
    remote_call_cuMemFree_v2(address);
}

static CUresult make_linear(struct want *want, CUdeviceptr *address) {
    return remote_call_cuMemAlloc_v2(address, want->size);
}

CUresult REMOTE_STUB(cuMemAlloc_v2)(CUdeviceptr *address, size_t size) {
    struct want want = {.make = make_linear, .unmake = unmake_linear, .size = size};

    return address ? make(&want, address) : remote_call_cuMemAlloc_v2(NULL, size);
}

static CUresult make_pitched(struct want *want, CUdeviceptr *address) {
    CUresult result = remote_call_cuMemAllocPitch_v2(address, &want->pitch, want->width,
                                                     want->height, want->element);

    if (result == CUDA_SUCCESS) {
        /* A worker that lies must not have the client believe in memory that is not there. */
        want->size =
            want->height && want->pitch > SIZE_MAX / want->height ? 0 : want->pitch * want->height;
    }
    return result;
}

CUresult REMOTE_STUB(cuMemAllocPitch_v2)(CUdeviceptr *address, size_t *pitch, size_t width,
                                         size_t height, unsigned int element) {
    struct want want = {.make = make_pitched,
                        .unmake = unmake_linear,
                        .width = width,
                        .height = height,
                        .element = element};

    if (!address || !pitch) {
        return remote_call_cuMemAllocPitch_v2(address, pitch, width, height, element);
    }
    CUresult result = make(&want, address);
    if (result == CUDA_SUCCESS) {
        *pitch = want.pitch;
    }
    return result;
}

static CUresult make_in_pool(struct want *want, CUdeviceptr *address) {
    if (want->per_thread) {
        return want->pool ? remote_call_cuMemAllocFromPoolAsync_ptsz(address, want->size,
                                                                     want->pool, want->stream)
                          : remote_call_cuMemAllocAsync_ptsz(address, want->size, want->stream);
    }
    return want->pool
               ? remote_call_cuMemAllocFromPoolAsync(address, want->size, want->pool, want->stream)
               : remote_call_cuMemAllocAsync(address, want->size, want->stream);
}

static void unmake_in_pool(const struct want *want, CUdeviceptr address) {
    if (want->per_thread) {
        remote_call_cuMemFreeAsync_ptsz(address, want->stream);
    } else {
        remote_call_cuMemFreeAsync(address, want->stream);
    }
}

static CUresult in_pool(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream,
                        bool per_thread) {
    struct want want = {.make = make_in_pool,
                        .unmake = unmake_in_pool,
                        .size = size,
                        .stream = stream,
                        .pool = pool,
                        .per_thread = per_thread,
                        .kind = REMOTE_RANGE_POOL};

    return address ? make(&want, address) : make_in_pool(&want, NULL);
}

CUresult REMOTE_STUB(cuMemAllocAsync)(CUdeviceptr *address, size_t size, CUstream stream) {
    return in_pool(address, size, NULL, stream, false);
}

CUresult REMOTE_STUB(cuMemAllocAsync_ptsz)(CUdeviceptr *address, size_t size, CUstream stream) {
    return in_pool(address, size, NULL, stream, true);
}

static CUresult from_pool(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream,
                          bool per_thread) {
    CUresult gate = (CUresult)remote_gate(REMOTE_cuMemAllocFromPoolAsync);

    if (gate != CUDA_SUCCESS) {
        return gate;
    }
    return pool ? in_pool(address, size, pool, stream, per_thread) : CUDA_ERROR_INVALID_VALUE;
}

CUresult REMOTE_STUB(cuMemAllocFromPoolAsync)(CUdeviceptr *address, size_t size, CUmemoryPool pool,
                                              CUstream stream) {
    return from_pool(address, size, pool, stream, false);
}

CUresult REMOTE_STUB(cuMemAllocFromPoolAsync_ptsz)(CUdeviceptr *address, size_t size,
                                                   CUmemoryPool pool, CUstream stream) {
    return from_pool(address, size, pool, stream, true);
}

static CUresult make_reserved(struct want *want, CUdeviceptr *address) {
    return remote_call_cuMemAddressReserve(address, want->size, want->align, want->wish,
                                           want->flags);
}

static void unmake_reserved(const struct want *want, CUdeviceptr address) {
    remote_call_cuMemAddressFree(address, want->size);
}

CUresult REMOTE_STUB(cuMemAddressReserve)(CUdeviceptr *address, size_t size, size_t align,
                                          CUdeviceptr wish, unsigned long long flags) {
    struct want want = {.make = make_reserved,
                        .unmake = unmake_reserved,
                        .size = size,
                        .align = align,
                        .wish = wish,
                        .flags = flags,
                        .kind = REMOTE_RANGE_RESERVED};

    return address ? make(&want, address)
                   : remote_call_cuMemAddressReserve(NULL, size, align, wish, flags);
}

CUresult REMOTE_STUB(cuMemAddressFree)(CUdeviceptr address, size_t size) {
    struct remote_range range;
    CUresult gate = (CUresult)remote_gate(REMOTE_cuMemAddressFree);

    if (gate != CUDA_SUCCESS) {
        return gate;
    }
    if (!remote_range_find(address, &range) || range.start != address || range.size != size ||
        range.kind != REMOTE_RANGE_RESERVED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    remote_range_leave(0, address);
    CUresult result = remote_call_cuMemAddressFree(address, size);
    remote_range_left(0, address, result == CUDA_SUCCESS);
    return result;
}

/* Takes an allocation out of the table, and lets go of its addresses before the worker can give them again: the call that
 * frees it does not wait. */
static bool take(CUdeviceptr address, struct remote_range *range) {
    return remote_range_find(address, range) && range->start == address && !range->host &&
           (range->kind == REMOTE_RANGE_LINEAR || range->kind == REMOTE_RANGE_POOL) &&
           remote_range_remove(address, range);
}

/* A call that was refused has freed nothing. */
static CUresult freed(CUresult result, const struct remote_range *range) {
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_DEVICE_UNAVAILABLE) {
        remote_range_add(range);
    }
    return result;
}

/* Other memory may be a graph's, which has it again when it runs again: the worker judges, the program waits, and the range
 * stays. */
static CUresult free_unknown(enum remote_number number, CUdeviceptr address, bool has_stream,
                             CUstream stream) {
    struct remote_call c;
    struct remote_reply r;

    if (!remote_range_foreign(address)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    remote_begin(&c, number, has_stream ? 2 : 1);
    c.words[0] = address;
    if (has_stream) {
        remote_use(&c, 1, REMOTE_KIND_CUstream, (uint64_t)stream);
    }
    remote_ask(&c, &r);
    return (CUresult)remote_end(&c, &r);
}

CUresult REMOTE_STUB(cuMemFree_v2)(CUdeviceptr address) {
    struct remote_range range;
    CUresult gate = (CUresult)remote_gate(REMOTE_cuMemFree_v2);

    gate = gate == CUDA_SUCCESS ? remote_current_result() : gate;
    if (gate != CUDA_SUCCESS || address == 0) {
        return gate;
    }
    return take(address, &range) ? freed(remote_call_cuMemFree_v2(address), &range)
                                 : free_unknown(REMOTE_cuMemFree_v2, address, false, NULL);
}

static CUresult free_in_order(enum remote_number number, CUdeviceptr address, CUstream stream,
                              CUresult (*call)(CUdeviceptr, CUstream)) {
    struct remote_range range;
    bool is_default = (uint64_t)stream <= remote_kinds[REMOTE_KIND_CUstream].fixed;
    CUresult gate = (CUresult)remote_gate(number);

    if (gate != CUDA_SUCCESS) {
        return gate;
    }
    if (!is_default && !remote_number_known(REMOTE_KIND_CUstream, (uint64_t)stream)) {
        return (CUresult)remote_kinds[REMOTE_KIND_CUstream].unknown;
    }
    gate = is_default ? remote_current_result() : CUDA_SUCCESS;
    if (gate != CUDA_SUCCESS) {
        return gate;
    }
    return take(address, &range) ? freed(call(address, stream), &range)
                                 : free_unknown(number, address, true, stream);
}

CUresult REMOTE_STUB(cuMemFreeAsync)(CUdeviceptr address, CUstream stream) {
    return free_in_order(REMOTE_cuMemFreeAsync, address, stream, remote_call_cuMemFreeAsync);
}

CUresult REMOTE_STUB(cuMemFreeAsync_ptsz)(CUdeviceptr address, CUstream stream) {
    return free_in_order(REMOTE_cuMemFreeAsync_ptsz, address, stream,
                         remote_call_cuMemFreeAsync_ptsz);
}
