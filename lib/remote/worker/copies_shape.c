/* Copies with a shape, and how each form of copy is asked of the driver. All forms are told by one structure, that of copies
 * between devices. */
#include "remote/worker/copies.h"

#include <string.h>

static CUmemorytype type_of(const struct remote_end *end) {
    return end->place == REMOTE_PLACE_DEVICE  ? CU_MEMORYTYPE_DEVICE
           : end->place == REMOTE_PLACE_ARRAY ? CU_MEMORYTYPE_ARRAY
                                              : CU_MEMORYTYPE_HOST;
}

/* No address of the client's own is left, nor an offset that leads away from the place. */
void remote_copy_ends(CUDA_MEMCPY3D_PEER *shape, const struct remote_end *to,
                      const struct remote_end *from) {
    shape->dstMemoryType = type_of(to);
    shape->dstHost = to->host;
    shape->dstDevice = to->device;
    shape->dstArray = to->array;
    if (remote_end_is_host(to)) {
        shape->dstXInBytes = shape->dstY = shape->dstZ = 0;
    }
    shape->srcMemoryType = type_of(from);
    shape->srcHost = from->host;
    shape->srcDevice = from->device;
    shape->srcArray = from->array;
    if (remote_end_is_host(from)) {
        shape->srcXInBytes = shape->srcY = shape->srcZ = 0;
    }
}

/* From the first byte to the last; false where that is more than there can be. */
static bool extent_of(const CUDA_MEMCPY3D_PEER *shape, uint64_t pitch, uint64_t height,
                      uint64_t *extent) {
    uint64_t slice, slices, rows;

    *extent = 0;
    if (!shape->WidthInBytes || !shape->Height || !shape->Depth) {
        return true;
    }
    pitch = pitch ? pitch : shape->WidthInBytes;
    return !__builtin_mul_overflow(pitch, height ? height : shape->Height, &slice) &&
           !__builtin_mul_overflow(slice, shape->Depth - 1, &slices) &&
           !__builtin_mul_overflow(pitch, shape->Height - 1, &rows) &&
           !__builtin_add_overflow(slices, rows, extent) &&
           !__builtin_add_overflow(*extent, shape->WidthInBytes, extent);
}

static enum remote_outcome decode(struct remote_decoder *decoder) {
    struct remote_copy copy = {0};
    struct remote_end to, from;
    uint64_t to_extent = 0, from_extent = 0;

    if (!remote_words(decoder, REMOTE_SHAPE_WORDS)) {
        return REMOTE_GARBLED;
    }
    remote_end_read(decoder, REMOTE_COPY_TO, &to);
    remote_end_read(decoder, REMOTE_COPY_FROM, &from);
    copy.stream = (CUstream)remote_handle(decoder, REMOTE_COPY_STREAM, REMOTE_KIND_CUstream);
    uint64_t to_context = remote_handle(decoder, REMOTE_COPY_TO_CONTEXT, REMOTE_KIND_CUcontext);
    uint64_t from_context = remote_handle(decoder, REMOTE_COPY_FROM_CONTEXT, REMOTE_KIND_CUcontext);
    const void *shape = remote_in(decoder, 0, 1, sizeof copy.shape);
    if (!shape) {
        return REMOTE_GARBLED;
    }
    memcpy(&copy.shape, shape, sizeof copy.shape);
    remote_copy_ends(&copy.shape, &to, &from);
    copy.shape.dstContext = (CUcontext)to_context;
    copy.shape.srcContext = (CUcontext)from_context;
    /* A copy in two dimensions knows no height of a slice, and one slice alone. */
    if (decoder->head.call == REMOTE_cuMemcpy2DAsync_v2) {
        copy.shape.Depth = 1;
    }
    if (!extent_of(&copy.shape, copy.shape.dstPitch, copy.shape.dstHeight, &to_extent) &&
        remote_end_is_host(&to)) {
        return REMOTE_GARBLED;
    }
    if (!extent_of(&copy.shape, copy.shape.srcPitch, copy.shape.srcHeight, &from_extent) &&
        remote_end_is_host(&from)) {
        return REMOTE_GARBLED;
    }
    return remote_copy_give(decoder, &copy, &to, to_extent, &from, from_extent);
}

enum remote_outcome remote_hand_cuMemcpy2DAsync_v2(struct remote_decoder *decoder) {
    return decode(decoder);
}

enum remote_outcome remote_hand_cuMemcpy3DAsync_v2(struct remote_decoder *decoder) {
    return decode(decoder);
}

enum remote_outcome remote_hand_cuMemcpy3DPeerAsync(struct remote_decoder *decoder) {
    return decode(decoder);
}

#define CALL(name, ...) (cuda->name ? cuda->name(__VA_ARGS__) : CUDA_ERROR_NOT_SUPPORTED)

static CUresult issue_row(const struct remote_cuda_driver *cuda, const struct remote_copy *copy) {
    const CUDA_MEMCPY3D_PEER *s = &copy->shape;
    size_t bytes = s->WidthInBytes;

    if (s->dstMemoryType == CU_MEMORYTYPE_HOST) {
        switch (s->srcMemoryType) {
        case CU_MEMORYTYPE_DEVICE:
            return CALL(cuMemcpyDtoHAsync_v2, s->dstHost, s->srcDevice, bytes, copy->stream);
        case CU_MEMORYTYPE_ARRAY:
            return CALL(cuMemcpyAtoHAsync_v2, s->dstHost, s->srcArray, s->srcXInBytes, bytes,
                        copy->stream);
        default: /* both are NULL */
            return CALL(cuMemcpyAsync, 0, 0, bytes, copy->stream);
        }
    }
    if (s->srcMemoryType == CU_MEMORYTYPE_HOST) {
        return s->dstMemoryType == CU_MEMORYTYPE_ARRAY
                   ? CALL(cuMemcpyHtoAAsync_v2, s->dstArray, s->dstXInBytes, s->srcHost, bytes,
                          copy->stream)
                   : CALL(cuMemcpyHtoDAsync_v2, s->dstDevice, s->srcHost, bytes, copy->stream);
    }
    if (s->srcMemoryType == CU_MEMORYTYPE_ARRAY || s->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CALL(cuMemcpyDtoDAsync_v2, s->dstDevice, s->srcDevice, bytes, copy->stream);
}

static CUresult issue_2d(const struct remote_cuda_driver *cuda, const struct remote_copy *copy) {
    const CUDA_MEMCPY3D_PEER *s = &copy->shape;
    const CUDA_MEMCPY2D flat = {.srcXInBytes = s->srcXInBytes,
                                .srcY = s->srcY,
                                .srcMemoryType = s->srcMemoryType,
                                .srcHost = s->srcHost,
                                .srcDevice = s->srcDevice,
                                .srcArray = s->srcArray,
                                .srcPitch = s->srcPitch,
                                .dstXInBytes = s->dstXInBytes,
                                .dstY = s->dstY,
                                .dstMemoryType = s->dstMemoryType,
                                .dstHost = s->dstHost,
                                .dstDevice = s->dstDevice,
                                .dstArray = s->dstArray,
                                .dstPitch = s->dstPitch,
                                .WidthInBytes = s->WidthInBytes,
                                .Height = s->Height};

    return CALL(cuMemcpy2DAsync_v2, &flat, copy->stream);
}

/* The two structures of three dimensions differ in the contexts alone, in whose place the other has nothing. */
static CUresult issue_3d(const struct remote_cuda_driver *cuda, const struct remote_copy *copy) {
    CUDA_MEMCPY3D deep;

    _Static_assert(sizeof deep == sizeof copy->shape, "CUDA_MEMCPY3D_PEER");
    memcpy(&deep, &copy->shape, sizeof deep);
    deep.reserved0 = deep.reserved1 = NULL;
    return CALL(cuMemcpy3DAsync_v2, &deep, copy->stream);
}

CUresult remote_copy_issue(const struct remote_cuda_driver *cuda, const struct remote_copy *copy) {
    switch (copy->call) {
    case REMOTE_cuMemcpy2DAsync_v2:
        return issue_2d(cuda, copy);
    case REMOTE_cuMemcpy3DAsync_v2:
        return issue_3d(cuda, copy);
    case REMOTE_cuMemcpy3DPeerAsync:
        return CALL(cuMemcpy3DPeerAsync, &copy->shape, copy->stream);
    default:
        return issue_row(cuda, copy);
    }
}
