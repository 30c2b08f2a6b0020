/* Many copies in one call, and copies with hints. Hints say where memory is, which both sides know; orders of access that are
 * weaker than the stream's are kept to by keeping the stream's. */
#include "remote/client/copies.h"

#include <string.h>

static bool is_order(CUmemcpySrcAccessOrder order) {
    return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

/* A batch takes no default stream, as documented. */
static bool is_stream(CUstream stream) {
    return stream && stream != CU_STREAM_LEGACY;
}

static CUresult batch(enum remote_number name, const CUdeviceptr *to, const CUdeviceptr *from,
                      const size_t *bytes, size_t count, size_t *failed, CUstream stream) {
    int32_t gate = remote_gate(name);
    CUresult result = gate ? (CUresult)gate : CUDA_SUCCESS;

    if (!gate && (!to || !from || !bytes || !count || !is_stream(stream))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
        result = remote_copy_row(to[i], from[i], bytes[i], stream);
        if (result != CUDA_SUCCESS && failed) {
            *failed = i;
        }
    }
    return result;
}

#define BATCH(name)                                                                                \
    CUresult REMOTE_STUB(name)(CUdeviceptr * to, CUdeviceptr * from, size_t *bytes, size_t count,  \
                               CUmemcpyAttributes *attributes, size_t *indices,                    \
                               size_t attribute_count, size_t *failed, CUstream stream) {          \
        (void)attributes, (void)indices, (void)attribute_count;                                    \
        return batch(REMOTE_##name, to, from, bytes, count, failed, stream);                       \
    }
#define BATCH_V2(name)                                                                             \
    CUresult REMOTE_STUB(name)(CUdeviceptr * to, CUdeviceptr * from, size_t *bytes, size_t count,  \
                               CUmemcpyAttributes *attributes, size_t *indices,                    \
                               size_t attribute_count, CUstream stream) {                          \
        (void)attributes, (void)indices, (void)attribute_count;                                    \
        return batch(REMOTE_##name, to, from, bytes, count, NULL, stream);                         \
    }

BATCH(cuMemcpyBatchAsync)
BATCH(cuMemcpyBatchAsync_ptsz)
BATCH_V2(cuMemcpyBatchAsync_v2)
BATCH_V2(cuMemcpyBatchAsync_v2_ptsz)

static CUresult hinted(enum remote_number name, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                       const CUmemcpyAttributes *attributes, CUstream stream) {
    int32_t gate = remote_gate(name);

    if (!gate && (!attributes || !is_order(attributes->srcAccessOrder))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return gate ? (CUresult)gate : remote_copy_row(to, from, bytes, stream);
}

CUresult REMOTE_STUB(cuMemcpyWithAttributesAsync)(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                                  CUmemcpyAttributes *attributes, CUstream stream) {
    return hinted(REMOTE_cuMemcpyWithAttributesAsync, to, from, bytes, attributes, stream);
}

CUresult REMOTE_STUB(cuMemcpyWithAttributesAsync_ptsz)(CUdeviceptr to, CUdeviceptr from,
                                                       size_t bytes, CUmemcpyAttributes *attributes,
                                                       CUstream stream) {
    return hinted(REMOTE_cuMemcpyWithAttributesAsync_ptsz, to, from, bytes, attributes,
                  stream ? stream : CU_STREAM_PER_THREAD);
}

/* Bytes of an element: lengths count elements where an array takes part, and bytes otherwise. */
static CUresult element_of(const CUmemcpy3DOperand *operand, size_t *element) {
    static const uint8_t bytes[] = {
        [CU_AD_FORMAT_UNSIGNED_INT8] = 1,  [CU_AD_FORMAT_SIGNED_INT8] = 1,
        [CU_AD_FORMAT_UNSIGNED_INT16] = 2, [CU_AD_FORMAT_SIGNED_INT16] = 2,
        [CU_AD_FORMAT_HALF] = 2,           [CU_AD_FORMAT_UNSIGNED_INT32] = 4,
        [CU_AD_FORMAT_SIGNED_INT32] = 4,   [CU_AD_FORMAT_FLOAT] = 4};
    CUDA_ARRAY3D_DESCRIPTOR what;

    if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        return CUDA_SUCCESS;
    }
    CUresult result = REMOTE_STUB(cuArray3DGetDescriptor_v2)(&what, operand->op.array.array);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    unsigned format = (unsigned)what.Format;
    if (format >= sizeof bytes || !bytes[format]) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *element = bytes[format] * (size_t)what.NumChannels;
    return CUDA_SUCCESS;
}

struct half {
    size_t x, y, z, pitch, height;
    CUmemorytype type;
    CUdeviceptr device;
    CUarray array;
};

/* False where a length is more than there can be. */
static bool half_of(const CUmemcpy3DOperand *operand, const CUextent3D *extent, size_t element,
                    struct half *half) {
    *half = (struct half){.type = CU_MEMORYTYPE_UNIFIED};
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        half->type = CU_MEMORYTYPE_ARRAY;
        half->array = operand->op.array.array;
        half->y = operand->op.array.offset.y;
        half->z = operand->op.array.offset.z;
        return !__builtin_mul_overflow(operand->op.array.offset.x, element, &half->x);
    }
    half->device = operand->op.ptr.ptr;
    half->height = operand->op.ptr.layerHeight;
    return !__builtin_mul_overflow(operand->op.ptr.rowLength ? operand->op.ptr.rowLength
                                                             : extent->width,
                                   element, &half->pitch);
}

static CUresult give(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream stream) {
    size_t element = 1, other = 0;
    struct half to, from;
    CUresult result = element_of(&op->dst, &element);

    if (result == CUDA_SUCCESS) {
        result = element_of(&op->src, &other);
        element = other ? other : element;
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUDA_MEMCPY3D_PEER shape = {.Height = op->extent.height, .Depth = op->extent.depth};
    if (__builtin_mul_overflow(op->extent.width, element, &shape.WidthInBytes) ||
        !half_of(&op->dst, &op->extent, element, &to) ||
        !half_of(&op->src, &op->extent, element, &from)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    shape.dstXInBytes = to.x;
    shape.dstY = to.y;
    shape.dstZ = to.z;
    shape.dstMemoryType = to.type;
    shape.dstDevice = to.device;
    shape.dstArray = to.array;
    shape.dstPitch = to.pitch;
    shape.dstHeight = to.height;
    shape.srcXInBytes = from.x;
    shape.srcY = from.y;
    shape.srcZ = from.z;
    shape.srcMemoryType = from.type;
    shape.srcDevice = from.device;
    shape.srcArray = from.array;
    shape.srcPitch = from.pitch;
    shape.srcHeight = from.height;
    return remote_copy_shaped(REMOTE_cuMemcpy3DAsync_v2, &shape, stream, false);
}

static CUresult shaped(enum remote_number name, const CUDA_MEMCPY3D_BATCH_OP *list, size_t count,
                       size_t *failed, unsigned long long flags, CUstream stream) {
    int32_t gate = remote_gate(name);
    CUresult result = gate ? (CUresult)gate : CUDA_SUCCESS;

    if (!gate && (flags || !list || !count || !is_stream(stream))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
        result = give(&list[i], stream);
        if (result != CUDA_SUCCESS && failed) {
            *failed = i;
        }
    }
    return result;
}

#define SHAPED(name)                                                                               \
    CUresult REMOTE_STUB(name)(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed,         \
                               unsigned long long flags, CUstream stream) {                        \
        return shaped(REMOTE_##name, list, count, failed, flags, stream);                          \
    }
#define SHAPED_V2(name)                                                                            \
    CUresult REMOTE_STUB(name)(size_t count, CUDA_MEMCPY3D_BATCH_OP *list,                         \
                               unsigned long long flags, CUstream stream) {                        \
        return shaped(REMOTE_##name, list, count, NULL, flags, stream);                            \
    }

SHAPED(cuMemcpy3DBatchAsync)
SHAPED(cuMemcpy3DBatchAsync_ptsz)
SHAPED_V2(cuMemcpy3DBatchAsync_v2)
SHAPED_V2(cuMemcpy3DBatchAsync_v2_ptsz)

/* One operation, which may go to a default stream. */
static CUresult hinted_shape(enum remote_number name, const CUDA_MEMCPY3D_BATCH_OP *op,
                             unsigned long long flags, CUstream stream) {
    int32_t gate = remote_gate(name);

    if (!gate && (!op || flags || !is_order(op->srcAccessOrder))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return gate ? (CUresult)gate : give(op, stream);
}

CUresult REMOTE_STUB(cuMemcpy3DWithAttributesAsync)(CUDA_MEMCPY3D_BATCH_OP *op,
                                                    unsigned long long flags, CUstream stream) {
    return hinted_shape(REMOTE_cuMemcpy3DWithAttributesAsync, op, flags, stream);
}

CUresult REMOTE_STUB(cuMemcpy3DWithAttributesAsync_ptsz)(CUDA_MEMCPY3D_BATCH_OP *op,
                                                         unsigned long long flags,
                                                         CUstream stream) {
    return hinted_shape(REMOTE_cuMemcpy3DWithAttributesAsync_ptsz, op, flags,
                        stream ? stream : CU_STREAM_PER_THREAD);
}

/* The engine for this writes results to memory of the program when it is done. No attribute says that there is one. */
static CUresult decompress(enum remote_number name) {
    int32_t gate = remote_gate(name);

    return gate ? (CUresult)gate : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult REMOTE_STUB(cuMemBatchDecompressAsync)(CUmemDecompressParams *list, size_t count,
                                                unsigned int flags, size_t *failed,
                                                CUstream stream) {
    (void)list, (void)count, (void)flags, (void)failed, (void)stream;
    return decompress(REMOTE_cuMemBatchDecompressAsync);
}

CUresult REMOTE_STUB(cuMemBatchDecompressAsync_ptsz)(CUmemDecompressParams *list, size_t count,
                                                     unsigned int flags, size_t *failed,
                                                     CUstream stream) {
    (void)list, (void)count, (void)flags, (void)failed, (void)stream;
    return decompress(REMOTE_cuMemBatchDecompressAsync_ptsz);
}
