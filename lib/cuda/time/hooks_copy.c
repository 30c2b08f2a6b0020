/* Memory that is copied, by all the driver's functions for it. Those without a stream work in the
 * default one. */
#include "cuda/time/copy.h"

/* Crossing between device and host, within the device, and what only the addresses tell. */
#define crossing move_crossing()
#define moved(bytes) move_within(bytes)

static struct move between(CUdeviceptr to, CUdeviceptr from, uint64_t bytes) {
    return copy_on_device(to) && copy_on_device(from) ? move_within(bytes) : move_crossing();
}

static struct move pairs(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes,
                         size_t count) {
    uint64_t sum = 0;
    if (to == NULL || from == NULL || bytes == NULL || count == 0) {
        return move_crossing();
    }
    for (size_t i = 0; i < count; i++) {
        sum += bytes[i];
    }
    return between(to[0], from[0], sum);
}

/* Whether one end of a shaped copy is on the device. */
static bool is_device(CUmemorytype type, CUdeviceptr address) {
    return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY ||
           (type == CU_MEMORYTYPE_UNIFIED && copy_on_device(address));
}

/* What a description of a shaped copy says; one for each of the driver's structs. */
#define DESCRIBED(name, type, rows)                                                                \
    static struct move name(const type *copy) {                                                    \
        if (copy == NULL || !is_device(copy->srcMemoryType, copy->srcDevice) ||                    \
            !is_device(copy->dstMemoryType, copy->dstDevice)) {                                    \
            return move_crossing();                                                                \
        }                                                                                          \
        return move_within((uint64_t)copy->WidthInBytes * (rows));                                 \
    }
DESCRIBED(plane, CUDA_MEMCPY2D, copy->Height)
DESCRIBED(plane_v1, CUDA_MEMCPY2D_v1, copy->Height)
DESCRIBED(box, CUDA_MEMCPY3D, (uint64_t)copy->Height * copy->Depth)
DESCRIBED(box_v1, CUDA_MEMCPY3D_v1, (uint64_t)copy->Height * copy->Depth)
DESCRIBED(peer_box, CUDA_MEMCPY3D_PEER, (uint64_t)copy->Height * copy->Depth)

static bool operand_on_device(const CUmemcpy3DOperand *operand) {
    return operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY ||
           (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER && copy_on_device(operand->op.ptr.ptr));
}

/* The first tells for all. Elements of arrays are taken for bytes. */
static struct move boxes(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count) {
    uint64_t sum = 0;
    if (copies == NULL || count == 0 || !operand_on_device(&copies->src) ||
        !operand_on_device(&copies->dst)) {
        return move_crossing();
    }
    for (size_t i = 0; i < count; i++) {
        sum += (uint64_t)copies[i].extent.width * copies[i].extent.height * copies[i].extent.depth;
    }
    return move_within(sum);
}

DOES(cuMemcpy, launch_legacy(NULL), between(to, from, bytes),
     (CUdeviceptr to, CUdeviceptr from, size_t bytes), to, from, bytes)
DOES(cuMemcpy2D, launch_legacy(NULL), plane_v1(copy), (const CUDA_MEMCPY2D_v1 *copy), copy)
GIVES(cuMemcpy2DAsync, launch_legacy(stream), plane_v1(copy),
      (const CUDA_MEMCPY2D_v1 *copy, CUstream stream), copy, stream)
GIVES(cuMemcpy2DAsync_v2, launch_legacy(stream), plane(copy),
      (const CUDA_MEMCPY2D *copy, CUstream stream), copy, stream)
GIVES(cuMemcpy2DAsync_v2_ptsz, launch_own(stream), plane(copy),
      (const CUDA_MEMCPY2D *copy, CUstream stream), copy, stream)
DOES(cuMemcpy2DUnaligned, launch_legacy(NULL), plane_v1(copy), (const CUDA_MEMCPY2D_v1 *copy), copy)
DOES(cuMemcpy2DUnaligned_v2, launch_legacy(NULL), plane(copy), (const CUDA_MEMCPY2D *copy), copy)
DOES(cuMemcpy2DUnaligned_v2_ptds, launch_own(NULL), plane(copy), (const CUDA_MEMCPY2D *copy), copy)
DOES(cuMemcpy2D_v2, launch_legacy(NULL), plane(copy), (const CUDA_MEMCPY2D *copy), copy)
DOES(cuMemcpy2D_v2_ptds, launch_own(NULL), plane(copy), (const CUDA_MEMCPY2D *copy), copy)
DOES(cuMemcpy3D, launch_legacy(NULL), box_v1(copy), (const CUDA_MEMCPY3D_v1 *copy), copy)
GIVES(cuMemcpy3DAsync, launch_legacy(stream), box_v1(copy),
      (const CUDA_MEMCPY3D_v1 *copy, CUstream stream), copy, stream)
GIVES(cuMemcpy3DAsync_v2, launch_legacy(stream), box(copy),
      (const CUDA_MEMCPY3D *copy, CUstream stream), copy, stream)
GIVES(cuMemcpy3DAsync_v2_ptsz, launch_own(stream), box(copy),
      (const CUDA_MEMCPY3D *copy, CUstream stream), copy, stream)
GIVES(cuMemcpy3DBatchAsync, launch_legacy(stream), boxes(copies, count),
      (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed, unsigned long long flags,
       CUstream stream),
      count, copies, failed, flags, stream)
GIVES(cuMemcpy3DBatchAsync_ptsz, launch_own(stream), boxes(copies, count),
      (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed, unsigned long long flags,
       CUstream stream),
      count, copies, failed, flags, stream)
GIVES(cuMemcpy3DBatchAsync_v2, launch_legacy(stream), boxes(copies, count),
      (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags, CUstream stream),
      count, copies, flags, stream)
GIVES(cuMemcpy3DBatchAsync_v2_ptsz, launch_own(stream), boxes(copies, count),
      (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags, CUstream stream),
      count, copies, flags, stream)
DOES(cuMemcpy3DPeer, launch_legacy(NULL), peer_box(copy), (const CUDA_MEMCPY3D_PEER *copy), copy)
GIVES(cuMemcpy3DPeerAsync, launch_legacy(stream), peer_box(copy),
      (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), copy, stream)
GIVES(cuMemcpy3DPeerAsync_ptsz, launch_own(stream), peer_box(copy),
      (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), copy, stream)
DOES(cuMemcpy3DPeer_ptds, launch_own(NULL), peer_box(copy), (const CUDA_MEMCPY3D_PEER *copy), copy)
GIVES(cuMemcpy3DWithAttributesAsync, launch_legacy(stream), boxes(copies, 1),
      (CUDA_MEMCPY3D_BATCH_OP * copies, unsigned long long flags, CUstream stream), copies, flags,
      stream)
GIVES(cuMemcpy3DWithAttributesAsync_ptsz, launch_own(stream), boxes(copies, 1),
      (CUDA_MEMCPY3D_BATCH_OP * copies, unsigned long long flags, CUstream stream), copies, flags,
      stream)
DOES(cuMemcpy3D_v2, launch_legacy(NULL), box(copy), (const CUDA_MEMCPY3D *copy), copy)
DOES(cuMemcpy3D_v2_ptds, launch_own(NULL), box(copy), (const CUDA_MEMCPY3D *copy), copy)
GIVES(cuMemcpyAsync, launch_legacy(stream), between(to, from, bytes),
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), to, from, bytes, stream)
GIVES(cuMemcpyAsync_ptsz, launch_own(stream), between(to, from, bytes),
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), to, from, bytes, stream)
DOES(cuMemcpyAtoA, launch_legacy(NULL), moved(bytes),
     (CUarray to, unsigned to_at, CUarray from, unsigned from_at, unsigned bytes), to, to_at, from,
     from_at, bytes)
DOES(cuMemcpyAtoA_v2, launch_legacy(NULL), moved(bytes),
     (CUarray to, size_t to_at, CUarray from, size_t from_at, size_t bytes), to, to_at, from,
     from_at, bytes)
DOES(cuMemcpyAtoA_v2_ptds, launch_own(NULL), moved(bytes),
     (CUarray to, size_t to_at, CUarray from, size_t from_at, size_t bytes), to, to_at, from,
     from_at, bytes)
DOES(cuMemcpyAtoD, launch_legacy(NULL), moved(bytes),
     (CUdeviceptr_v1 to, CUarray from, unsigned from_at, unsigned bytes), to, from, from_at, bytes)
DOES(cuMemcpyAtoD_v2, launch_legacy(NULL), moved(bytes),
     (CUdeviceptr to, CUarray from, size_t from_at, size_t bytes), to, from, from_at, bytes)
DOES(cuMemcpyAtoD_v2_ptds, launch_own(NULL), moved(bytes),
     (CUdeviceptr to, CUarray from, size_t from_at, size_t bytes), to, from, from_at, bytes)
DOES(cuMemcpyAtoH, launch_legacy(NULL), crossing,
     (void *to, CUarray from, unsigned from_at, unsigned bytes), to, from, from_at, bytes)
GIVES(cuMemcpyAtoHAsync, launch_legacy(stream), crossing,
      (void *to, CUarray from, unsigned from_at, unsigned bytes, CUstream stream), to, from,
      from_at, bytes, stream)
GIVES(cuMemcpyAtoHAsync_v2, launch_legacy(stream), crossing,
      (void *to, CUarray from, size_t from_at, size_t bytes, CUstream stream), to, from, from_at,
      bytes, stream)
GIVES(cuMemcpyAtoHAsync_v2_ptsz, launch_own(stream), crossing,
      (void *to, CUarray from, size_t from_at, size_t bytes, CUstream stream), to, from, from_at,
      bytes, stream)
DOES(cuMemcpyAtoH_v2, launch_legacy(NULL), crossing,
     (void *to, CUarray from, size_t from_at, size_t bytes), to, from, from_at, bytes)
DOES(cuMemcpyAtoH_v2_ptds, launch_own(NULL), crossing,
     (void *to, CUarray from, size_t from_at, size_t bytes), to, from, from_at, bytes)
GIVES(cuMemcpyBatchAsync, launch_legacy(stream), pairs(to, from, bytes, count),
      (CUdeviceptr * to, CUdeviceptr *from, size_t *bytes, size_t count,
       CUmemcpyAttributes *attributes, size_t *places, size_t attribute_count, size_t *failed,
       CUstream stream),
      to, from, bytes, count, attributes, places, attribute_count, failed, stream)
GIVES(cuMemcpyBatchAsync_ptsz, launch_own(stream), pairs(to, from, bytes, count),
      (CUdeviceptr * to, CUdeviceptr *from, size_t *bytes, size_t count,
       CUmemcpyAttributes *attributes, size_t *places, size_t attribute_count, size_t *failed,
       CUstream stream),
      to, from, bytes, count, attributes, places, attribute_count, failed, stream)
GIVES(cuMemcpyBatchAsync_v2, launch_legacy(stream), pairs(to, from, bytes, count),
      (CUdeviceptr * to, CUdeviceptr *from, size_t *bytes, size_t count,
       CUmemcpyAttributes *attributes, size_t *places, size_t attribute_count, CUstream stream),
      to, from, bytes, count, attributes, places, attribute_count, stream)
GIVES(cuMemcpyBatchAsync_v2_ptsz, launch_own(stream), pairs(to, from, bytes, count),
      (CUdeviceptr * to, CUdeviceptr *from, size_t *bytes, size_t count,
       CUmemcpyAttributes *attributes, size_t *places, size_t attribute_count, CUstream stream),
      to, from, bytes, count, attributes, places, attribute_count, stream)
DOES(cuMemcpyDtoA, launch_legacy(NULL), moved(bytes),
     (CUarray to, unsigned to_at, CUdeviceptr_v1 from, unsigned bytes), to, to_at, from, bytes)
DOES(cuMemcpyDtoA_v2, launch_legacy(NULL), moved(bytes),
     (CUarray to, size_t to_at, CUdeviceptr from, size_t bytes), to, to_at, from, bytes)
DOES(cuMemcpyDtoA_v2_ptds, launch_own(NULL), moved(bytes),
     (CUarray to, size_t to_at, CUdeviceptr from, size_t bytes), to, to_at, from, bytes)
DOES(cuMemcpyDtoD, launch_legacy(NULL), moved(bytes),
     (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned bytes), to, from, bytes)
GIVES(cuMemcpyDtoDAsync, launch_legacy(stream), moved(bytes),
      (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned bytes, CUstream stream), to, from, bytes,
      stream)
GIVES(cuMemcpyDtoDAsync_v2, launch_legacy(stream), moved(bytes),
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), to, from, bytes, stream)
GIVES(cuMemcpyDtoDAsync_v2_ptsz, launch_own(stream), moved(bytes),
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), to, from, bytes, stream)
DOES(cuMemcpyDtoD_v2, launch_legacy(NULL), moved(bytes),
     (CUdeviceptr to, CUdeviceptr from, size_t bytes), to, from, bytes)
DOES(cuMemcpyDtoD_v2_ptds, launch_own(NULL), moved(bytes),
     (CUdeviceptr to, CUdeviceptr from, size_t bytes), to, from, bytes)
DOES(cuMemcpyDtoH, launch_legacy(NULL), crossing, (void *to, CUdeviceptr_v1 from, unsigned bytes),
     to, from, bytes)
GIVES(cuMemcpyDtoHAsync, launch_legacy(stream), crossing,
      (void *to, CUdeviceptr_v1 from, unsigned bytes, CUstream stream), to, from, bytes, stream)
GIVES(cuMemcpyDtoHAsync_v2, launch_legacy(stream), crossing,
      (void *to, CUdeviceptr from, size_t bytes, CUstream stream), to, from, bytes, stream)
GIVES(cuMemcpyDtoHAsync_v2_ptsz, launch_own(stream), crossing,
      (void *to, CUdeviceptr from, size_t bytes, CUstream stream), to, from, bytes, stream)
DOES(cuMemcpyDtoH_v2, launch_legacy(NULL), crossing, (void *to, CUdeviceptr from, size_t bytes), to,
     from, bytes)
DOES(cuMemcpyDtoH_v2_ptds, launch_own(NULL), crossing, (void *to, CUdeviceptr from, size_t bytes),
     to, from, bytes)
DOES(cuMemcpyHtoA, launch_legacy(NULL), crossing,
     (CUarray to, unsigned to_at, const void *from, unsigned bytes), to, to_at, from, bytes)
GIVES(cuMemcpyHtoAAsync, launch_legacy(stream), crossing,
      (CUarray to, unsigned to_at, const void *from, unsigned bytes, CUstream stream), to, to_at,
      from, bytes, stream)
GIVES(cuMemcpyHtoAAsync_v2, launch_legacy(stream), crossing,
      (CUarray to, size_t to_at, const void *from, size_t bytes, CUstream stream), to, to_at, from,
      bytes, stream)
GIVES(cuMemcpyHtoAAsync_v2_ptsz, launch_own(stream), crossing,
      (CUarray to, size_t to_at, const void *from, size_t bytes, CUstream stream), to, to_at, from,
      bytes, stream)
DOES(cuMemcpyHtoA_v2, launch_legacy(NULL), crossing,
     (CUarray to, size_t to_at, const void *from, size_t bytes), to, to_at, from, bytes)
DOES(cuMemcpyHtoA_v2_ptds, launch_own(NULL), crossing,
     (CUarray to, size_t to_at, const void *from, size_t bytes), to, to_at, from, bytes)
DOES(cuMemcpyHtoD, launch_legacy(NULL), crossing,
     (CUdeviceptr_v1 to, const void *from, unsigned bytes), to, from, bytes)
GIVES(cuMemcpyHtoDAsync, launch_legacy(stream), crossing,
      (CUdeviceptr_v1 to, const void *from, unsigned bytes, CUstream stream), to, from, bytes,
      stream)
GIVES(cuMemcpyHtoDAsync_v2, launch_legacy(stream), crossing,
      (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), to, from, bytes, stream)
GIVES(cuMemcpyHtoDAsync_v2_ptsz, launch_own(stream), crossing,
      (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), to, from, bytes, stream)
DOES(cuMemcpyHtoD_v2, launch_legacy(NULL), crossing,
     (CUdeviceptr to, const void *from, size_t bytes), to, from, bytes)
DOES(cuMemcpyHtoD_v2_ptds, launch_own(NULL), crossing,
     (CUdeviceptr to, const void *from, size_t bytes), to, from, bytes)
DOES(cuMemcpyPeer, launch_legacy(NULL), moved(bytes),
     (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes),
     to, to_context, from, from_context, bytes)
GIVES(cuMemcpyPeerAsync, launch_legacy(stream), moved(bytes),
      (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
       CUstream stream),
      to, to_context, from, from_context, bytes, stream)
GIVES(cuMemcpyPeerAsync_ptsz, launch_own(stream), moved(bytes),
      (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
       CUstream stream),
      to, to_context, from, from_context, bytes, stream)
DOES(cuMemcpyPeer_ptds, launch_own(NULL), moved(bytes),
     (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes),
     to, to_context, from, from_context, bytes)
GIVES(cuMemcpyWithAttributesAsync, launch_legacy(stream), between(to, from, bytes),
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes *attributes,
       CUstream stream),
      to, from, bytes, attributes, stream)
GIVES(cuMemcpyWithAttributesAsync_ptsz, launch_own(stream), between(to, from, bytes),
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes *attributes,
       CUstream stream),
      to, from, bytes, attributes, stream)
DOES(cuMemcpy_ptds, launch_own(NULL), between(to, from, bytes),
     (CUdeviceptr to, CUdeviceptr from, size_t bytes), to, from, bytes)
