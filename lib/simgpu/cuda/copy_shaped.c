/* Two- and three-dimensional copies. */
#include "simgpu/cuda/copy.h"

/* Where a copy begins: so many slices, rows and bytes behind the base. 0, where nothing is, if that is beyond all addresses. */
static uint64_t begin(uint64_t base, const struct placement *place, size_t slices, size_t rows,
                      size_t bytes) {
    uint64_t slice, row, at;

    return __builtin_mul_overflow(slices, place->slice, &slice) ||
                   __builtin_mul_overflow(rows, place->pitch, &row) ||
                   __builtin_add_overflow(base, slice, &at) ||
                   __builtin_add_overflow(at, row, &at) || __builtin_add_overflow(at, bytes, &at)
               ? 0
               : at;
}

/* From one slice to the next; more than there can be if it is too much. */
static size_t slice_of(size_t pitch, size_t rows) {
    size_t slice;

    return __builtin_mul_overflow(pitch, rows, &slice) ? SIZE_MAX : slice;
}

struct copy copy_of_2d(const CUDA_MEMCPY2D *w) {
    struct copy copy = {.width = w->WidthInBytes, .height = w->Height, .depth = 1};

    copy.from = (struct placement){.type = w->srcMemoryType,
                                   .array = w->srcArray,
                                   .x = w->srcXInBytes,
                                   .y = w->srcY,
                                   .pitch = w->srcPitch ? w->srcPitch : w->WidthInBytes};
    copy.to = (struct placement){.type = w->dstMemoryType,
                                 .array = w->dstArray,
                                 .x = w->dstXInBytes,
                                 .y = w->dstY,
                                 .pitch = w->dstPitch ? w->dstPitch : w->WidthInBytes};
    copy.from.slice = slice_of(copy.from.pitch, w->Height);
    copy.to.slice = slice_of(copy.to.pitch, w->Height);
    copy.from.address =
        begin(w->srcMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)w->srcHost : w->srcDevice,
              &copy.from, 0, w->srcY, w->srcXInBytes);
    copy.to.address =
        begin(w->dstMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)w->dstHost : w->dstDevice,
              &copy.to, 0, w->dstY, w->dstXInBytes);
    return copy;
}

struct copy copy_of_3d(const CUDA_MEMCPY3D *w) {
    struct copy copy = {.width = w->WidthInBytes, .height = w->Height, .depth = w->Depth};

    copy.from = (struct placement){.type = w->srcMemoryType,
                                   .array = w->srcArray,
                                   .x = w->srcXInBytes,
                                   .y = w->srcY,
                                   .z = w->srcZ,
                                   .pitch = w->srcPitch ? w->srcPitch : w->WidthInBytes};
    copy.to = (struct placement){.type = w->dstMemoryType,
                                 .array = w->dstArray,
                                 .x = w->dstXInBytes,
                                 .y = w->dstY,
                                 .z = w->dstZ,
                                 .pitch = w->dstPitch ? w->dstPitch : w->WidthInBytes};
    copy.from.slice = slice_of(copy.from.pitch, w->srcHeight ? w->srcHeight : w->Height);
    copy.to.slice = slice_of(copy.to.pitch, w->dstHeight ? w->dstHeight : w->Height);
    copy.from.address =
        begin(w->srcMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)w->srcHost : w->srcDevice,
              &copy.from, w->srcZ, w->srcY, w->srcXInBytes);
    copy.to.address =
        begin(w->dstMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)w->dstHost : w->dstDevice,
              &copy.to, w->dstZ, w->dstY, w->dstXInBytes);
    return copy;
}

static CUresult give_2d(const CUDA_MEMCPY2D *what, CUstream stream, enum copy_way way,
                        const char *name) {
    SG_READY();
    SG_REQUIRE(what, CUDA_ERROR_INVALID_VALUE);
    struct copy copy = copy_of_2d(what);
    return copy_give(&copy, stream, way, name);
}

static CUresult give_3d(const CUDA_MEMCPY3D *what, CUstream stream, enum copy_way way,
                        const char *name) {
    SG_READY();
    SG_REQUIRE(what && what->srcLOD == 0 && what->dstLOD == 0, CUDA_ERROR_INVALID_VALUE);
    struct copy copy = copy_of_3d(what);
    return copy_give(&copy, stream, way, name);
}

/* The description of a copy between devices has the same layout, except that contexts stand in
 * place of the reserved fields. */
static CUresult give_peer(const CUDA_MEMCPY3D_PEER *w, CUstream stream, enum copy_way way,
                          const char *name) {
    SG_READY();
    SG_REQUIRE(w, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(sg_context_given(w->srcContext) && sg_context_given(w->dstContext),
               CUDA_ERROR_INVALID_CONTEXT);
    CUDA_MEMCPY3D plain = {.srcXInBytes = w->srcXInBytes,
                           .srcY = w->srcY,
                           .srcZ = w->srcZ,
                           .srcLOD = w->srcLOD,
                           .srcMemoryType = w->srcMemoryType,
                           .srcHost = w->srcHost,
                           .srcDevice = w->srcDevice,
                           .srcArray = w->srcArray,
                           .srcPitch = w->srcPitch,
                           .srcHeight = w->srcHeight,
                           .dstXInBytes = w->dstXInBytes,
                           .dstY = w->dstY,
                           .dstZ = w->dstZ,
                           .dstLOD = w->dstLOD,
                           .dstMemoryType = w->dstMemoryType,
                           .dstHost = w->dstHost,
                           .dstDevice = w->dstDevice,
                           .dstArray = w->dstArray,
                           .dstPitch = w->dstPitch,
                           .dstHeight = w->dstHeight,
                           .WidthInBytes = w->WidthInBytes,
                           .Height = w->Height,
                           .Depth = w->Depth};
    return give_3d(&plain, stream, way, name);
}

#define SYNC(name, type, give)                                                                     \
    CUresult name(const type *what) {                                                              \
        return give(what, NULL, COPY_SYNC, __func__);                                              \
    }                                                                                              \
    CUresult name##_ptds(const type *what) {                                                       \
        return give(what, NULL, COPY_SYNC_PTDS, __func__);                                         \
    }
#define ASYNC(name, type, give)                                                                    \
    CUresult name(const type *what, CUstream stream) {                                             \
        return give(what, stream, COPY_ASYNC, __func__);                                           \
    }                                                                                              \
    CUresult name##_ptsz(const type *what, CUstream stream) {                                      \
        return give(what, stream, COPY_ASYNC_PTSZ, __func__);                                      \
    }

SYNC(cuMemcpy2D_v2, CUDA_MEMCPY2D, give_2d)
SYNC(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, give_2d)
ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, give_2d)
SYNC(cuMemcpy3D_v2, CUDA_MEMCPY3D, give_3d)
ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, give_3d)
SYNC(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, give_peer)
ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, give_peer)
