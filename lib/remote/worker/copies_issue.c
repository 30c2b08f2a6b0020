/* How each form of copy is asked of the driver. All forms are told by one structure, that of copies between devices. */
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

/* Where it refuses, it does so at once. */
CUresult remote_copy_may_block(const struct remote_decoder *decoder) {
    return decoder->cuda->cuMemcpyHtoD_v2 && remote_capture_forbids(decoder->head.thread)
               ? decoder->cuda->cuMemcpyHtoD_v2(0, NULL, 0)
               : CUDA_SUCCESS;
}
