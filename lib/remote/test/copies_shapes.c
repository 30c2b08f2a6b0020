/* Drawn copies in two and three dimensions. */
#include "remote/test/copies_draw.h"

#include "test/check.h"

#include <string.h>

/* One half of a description, drawn once for both sides. */
struct half {
    enum where where;
    unsigned which, type;
    size_t x, y, z, pitch, height, at;
};

static struct half draw_half(size_t width, size_t height, size_t depth, bool deep) {
    struct half half = {.where = draw_where(), .which = (unsigned)below(2)};

    half.where = !deep && half.where == DEEP ? FLAT : half.where;
    half.x = below(3) ? 0 : below(8) * ELEMENT;
    half.y = below(3) ? 0 : below(5);
    half.z = deep && !below(3) ? below(3) : 0;
    if (half.where == NOWHERE) {
        /* With an offset it is an address like any other, and the driver's end. */
        half.x = half.y = half.z = 0;
    }
    half.pitch = below(4) ? width + below(64) : below(2) ? 0 : below(2) ? width : below(width + 1);
    half.height = deep && below(2) ? height + below(3) : 0;
    half.type = (unsigned)below(2);
    size_t pitch = half.pitch ? half.pitch : width,
           slice = pitch * (half.height ? half.height : height);
    size_t reach = (half.z + depth) * slice + (half.y + height) * pitch + half.x + width;
    half.at = reach < ROOM ? below(ROOM - reach) : FAR;
    half.type = half.at == FAR ? 0 : half.type;
    return half;
}

static void write_half(const struct copies_side *side, const struct half *half, bool to,
                       CUDA_MEMCPY3D *what) {
    enum where where = half->where;
    CUmemorytype type = is_array(where)    ? CU_MEMORYTYPE_ARRAY
                        : half->type       ? CU_MEMORYTYPE_UNIFIED
                        : is_host(where)   ? CU_MEMORYTYPE_HOST
                        : where == NOWHERE ? CU_MEMORYTYPE_HOST
                                           : CU_MEMORYTYPE_DEVICE;
    void *host = type == CU_MEMORYTYPE_HOST ? host_of(side, where, half->which, half->at) : NULL;
    CUdeviceptr device = type == CU_MEMORYTYPE_UNIFIED
                             ? unified_of(side, where, half->which, half->at)
                         : type == CU_MEMORYTYPE_DEVICE ? device_of(side, where, half->at)
                                                        : 0;
    CUarray array = where == DEEP ? side->deep : where == FLAT ? side->flat : NULL;

    if (to) {
        what->dstMemoryType = type, what->dstHost = host, what->dstDevice = device;
        what->dstArray = array, what->dstXInBytes = half->x, what->dstY = half->y;
        what->dstZ = half->z, what->dstPitch = half->pitch, what->dstHeight = half->height;
    } else {
        what->srcMemoryType = type, what->srcHost = host, what->srcDevice = device;
        what->srcArray = array, what->srcXInBytes = half->x, what->srcY = half->y;
        what->srcZ = half->z, what->srcPitch = half->pitch, what->srcHeight = half->height;
    }
}

static CUDA_MEMCPY2D flat_of(const CUDA_MEMCPY3D *w) {
    return (CUDA_MEMCPY2D){w->srcXInBytes, w->srcY,          w->srcMemoryType, w->srcHost,
                           w->srcDevice,   w->srcArray,      w->srcPitch,      w->dstXInBytes,
                           w->dstY,        w->dstMemoryType, w->dstHost,       w->dstDevice,
                           w->dstArray,    w->dstPitch,      w->WidthInBytes,  w->Height};
}

/* The same for a batch, whose lengths count elements where an array takes part. */
static bool operand_of(const struct copies_side *side, const struct half *half,
                       CUmemcpy3DOperand *operand) {
    memset(operand, 0, sizeof *operand);
    if (is_array(half->where)) {
        operand->type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
        operand->op.array.array = half->where == DEEP ? side->deep : side->flat;
        operand->op.array.offset.x = half->x;
        operand->op.array.offset.y = half->y;
        operand->op.array.offset.z = half->z;
        return true;
    }
    operand->type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    operand->op.ptr.rowLength = half->pitch / ELEMENT;
    operand->op.ptr.layerHeight = half->height;
    operand->op.ptr.ptr =
        half->at == FAR ? 0 : unified_of(side, half->where, half->which, half->at);
    return half->at != FAR;
}

static CUresult batch(const struct copies_side *side, const CUDA_MEMCPY3D *what,
                      const struct half *to, const struct half *from, unsigned form) {
    CUDA_MEMCPY3D_BATCH_OP op = {
        .extent = {what->WidthInBytes / ELEMENT, what->Height, what->Depth},
        .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    size_t failed = 77;

    operand_of(side, to, &op.dst);
    operand_of(side, from, &op.src);
    CUresult result =
        form & 1 ? side->call->cuMemcpy3DBatchAsync(1, &op, &failed, 0, side->stream)
                 : side->call->cuMemcpy3DBatchAsync_v2(1, &op, 0, form & 4 ? side->stream : NULL);
    CHECK(failed == 77 || (failed == 0 && result != CUDA_SUCCESS));
    return result;
}

static CUresult do_shape(const struct copies_side *side, const CUDA_MEMCPY3D *what, bool deep,
                         unsigned form) {
    const struct remote_cuda_driver *call = side->call;
    CUstream stream = form & 2 ? side->stream : NULL;
    CUDA_MEMCPY2D flat = flat_of(what);
    CUDA_MEMCPY3D_PEER peer;

    memcpy(&peer, what, sizeof peer);
    peer.srcContext = peer.dstContext = form % 5 ? side->context : NULL;
    if (!deep) {
        return form & 1   ? call->cuMemcpy2DAsync_v2(&flat, stream)
               : form & 4 ? call->cuMemcpy2DUnaligned_v2(&flat)
                          : call->cuMemcpy2D_v2(&flat);
    }
    if (form & 8) {
        return form & 1 ? call->cuMemcpy3DPeerAsync(&peer, stream) : call->cuMemcpy3DPeer(&peer);
    }
    return form & 1 ? call->cuMemcpy3DAsync_v2(what, stream) : call->cuMemcpy3D_v2(what);
}

CUresult copies_shape(const struct copies_side *side) {
    bool deep = below(2);
    size_t width = below(10) ? 1 + below(deep ? 400 : 4000) : below(ROOM / 2);
    size_t height = width > 5000 ? 1 + below(2) : 1 + below(deep ? 40 : 400);
    size_t depth = deep ? 1 + below(4) : 1;
    CUDA_MEMCPY3D what = {.WidthInBytes = below(30) ? width : 0,
                          .Height = below(30) ? height : 0,
                          .Depth = below(30) ? depth : 0};
    struct half to = draw_half(width, height, depth, deep);
    struct half from = draw_half(width, height, depth, deep);
    unsigned form = (unsigned)below(24);

    while (is_host(to.where) && to.at == FAR) {
        to = draw_half(width, height, depth, deep);
    }
    while (is_host(from.where) && from.at == FAR) {
        from = draw_half(width, height, depth, deep);
    }
    if (deep && form >= 16) {
        return batch(side, &what, &to, &from, form);
    }
    write_half(side, &to, true, &what);
    write_half(side, &from, false, &what);
    return do_shape(side, &what, deep, form);
}
