/* Copies in two and three dimensions. The addresses of the program's memory are worked out here: where its first byte is, and
 * how far the shape reaches from there. A shape that no memory can have is given to the driver without the memory, and it
 * answers as it would. */
#include "remote/client/copies.h"

#include <string.h>

bool remote_shape_extent(const CUDA_MEMCPY3D_PEER *shape, size_t pitch, size_t slice,
                         uint64_t *extent) {
    uint64_t slices, rows;

    *extent = 0;
    if (!shape->WidthInBytes || !shape->Height || !shape->Depth) {
        return true;
    }
    return !__builtin_mul_overflow(slice, shape->Depth - 1, &slices) &&
           !__builtin_mul_overflow(pitch, shape->Height - 1, &rows) &&
           !__builtin_add_overflow(slices, rows, extent) &&
           !__builtin_add_overflow(*extent, shape->WidthInBytes, extent);
}

/* One side of a description. */
struct half {
    size_t x, y, z, pitch, height;
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t slice; /* worked out */
    uint64_t extent;
};

/* Where the first byte of the copy is, counted from an address; false where there is nothing any more. */
static bool begin(struct half *half, const CUDA_MEMCPY3D_PEER *shape, uint64_t *at) {
    uint64_t slices, rows;

    half->pitch = half->pitch ? half->pitch : shape->WidthInBytes;
    /* Where one slice is too far from the next, the first is there all the same. */
    if (__builtin_mul_overflow(half->pitch, half->height ? half->height : shape->Height,
                               &half->slice)) {
        half->slice = SIZE_MAX;
    }
    if (__builtin_mul_overflow(half->slice, half->z, &slices) ||
        __builtin_mul_overflow(half->pitch, half->y, &rows) ||
        __builtin_add_overflow(*at, slices, at) || __builtin_add_overflow(*at, rows, at) ||
        __builtin_add_overflow(*at, half->x, at) ||
        !remote_shape_extent(shape, half->pitch, half->slice, &half->extent)) {
        return false;
    }
    return shape->Height <= 1 || half->pitch >= shape->WidthInBytes;
}

static struct remote_side side_of(struct half *half, const CUDA_MEMCPY3D_PEER *shape) {
    const struct remote_side none = {.place = REMOTE_PLACE_NONE};
    bool is_host = half->type == CU_MEMORYTYPE_HOST;
    uint64_t at = is_host ? (uintptr_t)half->host : half->device, base = at;
    struct remote_side side;

    if (half->type == CU_MEMORYTYPE_ARRAY) {
        return remote_side_array(half->array, 0);
    }
    bool there = at && begin(half, shape, &at);
    if (is_host) {
        return there ? remote_side_host((const void *)(uintptr_t)at, half->extent) : none;
    }
    if (half->type != CU_MEMORYTYPE_DEVICE && half->type != CU_MEMORYTYPE_UNIFIED) {
        return none;
    }
    /* The address that is given says on which side it is, not what is reached from it. */
    side = half->type == CU_MEMORYTYPE_UNIFIED ? remote_side_unified(base, 0)
                                               : remote_side_device(base, 0);
    if (side.place != REMOTE_PLACE_DEVICE) {
        return there ? remote_side_host((const void *)(uintptr_t)at, half->extent) : none;
    }
    side = remote_side_device(at, half->extent);
    /* The description has the offsets. */
    side.value = base;
    side.known = side.known && there;
    return side;
}

static bool is_host(const struct remote_side *side) {
    return side->place == REMOTE_PLACE_AREA || side->place == REMOTE_PLACE_REGION;
}

CUresult remote_copy_shaped(enum remote_number call, CUDA_MEMCPY3D_PEER *shape, CUstream stream,
                            bool waits) {
    struct half to = {.x = shape->dstXInBytes,
                      .y = shape->dstY,
                      .z = shape->dstZ,
                      .pitch = shape->dstPitch,
                      .height = shape->dstHeight,
                      .type = shape->dstMemoryType,
                      .host = shape->dstHost,
                      .device = shape->dstDevice,
                      .array = shape->dstArray};
    struct half from = {.x = shape->srcXInBytes,
                        .y = shape->srcY,
                        .z = shape->srcZ,
                        .pitch = shape->srcPitch,
                        .height = shape->srcHeight,
                        .type = shape->srcMemoryType,
                        .host = shape->srcHost,
                        .device = shape->srcDevice,
                        .array = shape->srcArray};
    struct remote_copying copy = {.call = call, .waits = waits, .stream = stream};

    copy.to = side_of(&to, shape);
    copy.from = side_of(&from, shape);
    const struct half *first = is_host(&copy.to) || !is_host(&copy.from) ? &to : &from;
    const struct half *second = first == &to ? &from : &to;
    copy.shape = *shape;
    if (is_host(&copy.to)) {
        copy.shape.dstXInBytes = copy.shape.dstY = copy.shape.dstZ = 0;
    }
    if (is_host(&copy.from)) {
        copy.shape.srcXInBytes = copy.shape.srcY = copy.shape.srcZ = 0;
    }
    copy.pitch = first->pitch;
    copy.slice = first->slice;
    copy.extent = first->extent;
    copy.other_pitch = second->pitch;
    copy.other_slice = second->slice;
    return remote_copy(&copy);
}

static CUresult give_2d(enum remote_number name, const CUDA_MEMCPY2D *w, CUstream stream,
                        bool waits) {
    int32_t gate = remote_gate(name);

    if (gate || !w) {
        return gate ? (CUresult)gate : CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_MEMCPY3D_PEER shape = {.srcXInBytes = w->srcXInBytes,
                                .srcY = w->srcY,
                                .srcMemoryType = w->srcMemoryType,
                                .srcHost = w->srcHost,
                                .srcDevice = w->srcDevice,
                                .srcArray = w->srcArray,
                                .srcPitch = w->srcPitch,
                                .dstXInBytes = w->dstXInBytes,
                                .dstY = w->dstY,
                                .dstMemoryType = w->dstMemoryType,
                                .dstHost = w->dstHost,
                                .dstDevice = w->dstDevice,
                                .dstArray = w->dstArray,
                                .dstPitch = w->dstPitch,
                                .WidthInBytes = w->WidthInBytes,
                                .Height = w->Height,
                                .Depth = 1};
    return remote_copy_shaped(REMOTE_cuMemcpy2DAsync_v2, &shape, stream, waits);
}

static CUresult give_3d(enum remote_number name, const CUDA_MEMCPY3D *what, CUstream stream,
                        bool waits) {
    int32_t gate = remote_gate(name);
    CUDA_MEMCPY3D_PEER shape;

    if (gate || !what) {
        return gate ? (CUresult)gate : CUDA_ERROR_INVALID_VALUE;
    }
    /* The same, but for contexts in place of what is reserved. */
    memcpy(&shape, what, sizeof shape);
    shape.srcContext = shape.dstContext = NULL;
    return remote_copy_shaped(REMOTE_cuMemcpy3DAsync_v2, &shape, stream, waits);
}

static CUresult give_peer(enum remote_number name, const CUDA_MEMCPY3D_PEER *what, CUstream stream,
                          bool waits) {
    int32_t gate = remote_gate(name);

    if (gate || !what) {
        return gate ? (CUresult)gate : CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_MEMCPY3D_PEER shape = *what;
    return remote_copy_shaped(REMOTE_cuMemcpy3DPeerAsync, &shape, stream, waits);
}

#define SYNC(name, type, give)                                                                     \
    CUresult REMOTE_STUB(name)(const type *what) {                                                 \
        return give(REMOTE_##name, what, NULL, true);                                              \
    }                                                                                              \
    CUresult REMOTE_STUB(name##_ptds)(const type *what) {                                          \
        return give(REMOTE_##name, what, CU_STREAM_PER_THREAD, true);                              \
    }
#define ASYNC(name, type, give)                                                                    \
    CUresult REMOTE_STUB(name)(const type *what, CUstream stream) {                                \
        return give(REMOTE_##name, what, stream, false);                                           \
    }                                                                                              \
    CUresult REMOTE_STUB(name##_ptsz)(const type *what, CUstream stream) {                         \
        return give(REMOTE_##name, what, stream ? stream : CU_STREAM_PER_THREAD, false);           \
    }

SYNC(cuMemcpy2D_v2, CUDA_MEMCPY2D, give_2d)
SYNC(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, give_2d)
ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, give_2d)
SYNC(cuMemcpy3D_v2, CUDA_MEMCPY3D, give_3d)
ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, give_3d)
SYNC(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, give_peer)
ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, give_peer)
