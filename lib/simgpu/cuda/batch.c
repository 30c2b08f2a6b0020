/* Batches of copies and of movements of managed memory, since CUDA 12.8. */
#include "simgpu/cuda/copy.h"

/* A batch issues its copies in order. It refuses the default stream, as documented. */
static CUresult batch(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                      size_t *failed, CUstream stream, enum copy_way way, const char *name) {
    SG_REQUIRE(to && from && bytes && count, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(stream && stream != CU_STREAM_LEGACY, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        CUresult result =
            copy_row(place_unified(to[i]), place_unified(from[i]), bytes[i], stream, way, name);
        if (result != CUDA_SUCCESS) {
            if (failed) {
                *failed = i;
            }
            return result;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                            CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count,
                            size_t *failed, CUstream stream) {
    (void)attributes, (void)indices, (void)attribute_count;
    return batch(to, from, bytes, count, failed, stream, COPY_ASYNC, __func__);
}

CUresult cuMemcpyBatchAsync_ptsz(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                                 CUmemcpyAttributes *attributes, size_t *indices,
                                 size_t attribute_count, size_t *failed, CUstream stream) {
    (void)attributes, (void)indices, (void)attribute_count;
    return batch(to, from, bytes, count, failed, stream, COPY_ASYNC_PTSZ, __func__);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                               CUmemcpyAttributes *attributes, size_t *indices,
                               size_t attribute_count, CUstream stream) {
    (void)attributes, (void)indices, (void)attribute_count;
    return batch(to, from, bytes, count, NULL, stream, COPY_ASYNC, __func__);
}

CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                                    CUmemcpyAttributes *attributes, size_t *indices,
                                    size_t attribute_count, CUstream stream) {
    (void)attributes, (void)indices, (void)attribute_count;
    return batch(to, from, bytes, count, NULL, stream, COPY_ASYNC_PTSZ, __func__);
}

/* One side of a shaped copy; row lengths and layer heights of 0 are those of the extent. */
static struct placement side(const CUmemcpy3DOperand *operand, const CUextent3D *extent) {
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        const struct CUarray_st *array = operand->op.array.array;
        size_t element = handle_is(array, HANDLE_ARRAY) ? array->element : 1;
        return (struct placement){.type = CU_MEMORYTYPE_ARRAY,
                                  .array = operand->op.array.array,
                                  .x = operand->op.array.offset.x * element,
                                  .y = operand->op.array.offset.y,
                                  .z = operand->op.array.offset.z};
    }
    size_t row = operand->op.ptr.rowLength ? operand->op.ptr.rowLength : extent->width;
    size_t layer = operand->op.ptr.layerHeight ? operand->op.ptr.layerHeight : extent->height;
    return (struct placement){.type = CU_MEMORYTYPE_UNIFIED,
                              .address = operand->op.ptr.ptr,
                              .pitch = row,
                              .slice = row * layer};
}

/* Widths count elements where an array takes part, bytes otherwise. */
static size_t element_of(const CUDA_MEMCPY3D_BATCH_OP *op) {
    if (op->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY &&
        handle_is(op->src.op.array.array, HANDLE_ARRAY)) {
        return op->src.op.array.array->element;
    }
    if (op->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY &&
        handle_is(op->dst.op.array.array, HANDLE_ARRAY)) {
        return op->dst.op.array.array->element;
    }
    return 1;
}

static CUresult give_shaped(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream stream, enum copy_way way,
                            const char *name) {
    size_t element = element_of(op);
    struct copy copy = {.to = side(&op->dst, &op->extent),
                        .from = side(&op->src, &op->extent),
                        .width = op->extent.width * element,
                        .height = op->extent.height,
                        .depth = op->extent.depth};

    copy.to.pitch *= element;
    copy.to.slice *= element;
    copy.from.pitch *= element;
    copy.from.slice *= element;
    return copy_give(&copy, stream, way, name);
}

static CUresult shaped(CUDA_MEMCPY3D_BATCH_OP *list, size_t count, size_t *failed, CUstream stream,
                       enum copy_way way, const char *name) {
    SG_REQUIRE(list && count && stream && stream != CU_STREAM_LEGACY, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        CUresult result = give_shaped(&list[i], stream, way, name);
        if (result != CUDA_SUCCESS) {
            if (failed) {
                *failed = i;
            }
            return result;
        }
    }
    return CUDA_SUCCESS;
}

#define SHAPED(name, way)                                                                          \
    CUresult name(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed,                      \
                  unsigned long long flags, CUstream stream) {                                     \
        return flags ? CUDA_ERROR_INVALID_VALUE                                                    \
                     : shaped(list, count, failed, stream, way, __func__);                         \
    }
#define SHAPED_V2(name, way)                                                                       \
    CUresult name(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, unsigned long long flags,            \
                  CUstream stream) {                                                               \
        return flags ? CUDA_ERROR_INVALID_VALUE                                                    \
                     : shaped(list, count, NULL, stream, way, __func__);                           \
    }

SHAPED(cuMemcpy3DBatchAsync, COPY_ASYNC)
SHAPED(cuMemcpy3DBatchAsync_ptsz, COPY_ASYNC_PTSZ)
SHAPED_V2(cuMemcpy3DBatchAsync_v2, COPY_ASYNC)
SHAPED_V2(cuMemcpy3DBatchAsync_v2_ptsz, COPY_ASYNC_PTSZ)

/* Movements of managed memory: location i applies to the ranges that begin at index first[i]. */
static CUresult move(CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *to,
                     size_t *first, size_t locations, CUstream stream, bool ptds) {
    SG_REQUIRE(addresses && bytes && count && to && first && locations && first[0] == 0,
               CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0, l = 0; i < count; i++) {
        while (l + 1 < locations && first[l + 1] <= i) {
            l++;
        }
        SG_TRY(ptds ? cuMemPrefetchAsync_v2_ptsz(addresses[i], bytes[i], to[l], 0, stream)
                    : cuMemPrefetchAsync_v2(addresses[i], bytes[i], to[l], 0, stream));
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *addresses, size_t *bytes, size_t count,
                                 CUmemLocation *to, size_t *first, size_t locations,
                                 unsigned long long flags, CUstream stream) {
    SG_REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
    return move(addresses, bytes, count, to, first, locations, stream, false);
}

CUresult cuMemPrefetchBatchAsync_ptsz(CUdeviceptr *addresses, size_t *bytes, size_t count,
                                      CUmemLocation *to, size_t *first, size_t locations,
                                      unsigned long long flags, CUstream stream) {
    SG_REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
    return move(addresses, bytes, count, to, first, locations, stream, true);
}

/* Discarding allows the contents to be lost; they are kept, which is allowed too. */
static CUresult discard(CUdeviceptr *addresses, size_t *bytes, size_t count,
                        unsigned long long flags, CUstream handle, bool ptds) {
    SG_STREAM(stream, handle, ptds);
    SG_REQUIRE(addresses && bytes && count && flags == 0, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        SG_REQUIRE(sg_mapped(addresses[i], bytes[i]), CUDA_ERROR_INVALID_VALUE);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemDiscardBatchAsync(CUdeviceptr *addresses, size_t *bytes, size_t count,
                                unsigned long long flags, CUstream stream) {
    return discard(addresses, bytes, count, flags, stream, false);
}

CUresult cuMemDiscardBatchAsync_ptsz(CUdeviceptr *addresses, size_t *bytes, size_t count,
                                     unsigned long long flags, CUstream stream) {
    return discard(addresses, bytes, count, flags, stream, true);
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *addresses, size_t *bytes, size_t count,
                                           CUmemLocation *to, size_t *first, size_t locations,
                                           unsigned long long flags, CUstream stream) {
    SG_TRY(discard(addresses, bytes, count, flags, stream, false));
    return move(addresses, bytes, count, to, first, locations, stream, false);
}

CUresult cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr *addresses, size_t *bytes, size_t count,
                                                CUmemLocation *to, size_t *first, size_t locations,
                                                unsigned long long flags, CUstream stream) {
    SG_TRY(discard(addresses, bytes, count, flags, stream, true));
    return move(addresses, bytes, count, to, first, locations, stream, true);
}
