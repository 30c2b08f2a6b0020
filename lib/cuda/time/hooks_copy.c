/* Memory that is copied or filled, by all the driver's functions for it. Those without a stream
 * work in the default one. */
#include "cuda/time/copy.h"
#include "cuda/time/named.h"

/* What abi/cuda.yaml tells of a copy: that it crosses to or from the host, or how many bytes it
 * moves on the device or fills; or the addresses or the description that have to tell. */
#define crossing move_crossing
#define within(bytes) move_within(bytes)
#define filling(value, width, height) move_filling((uint64_t)(width) * (height) * sizeof(value))

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

#define described(copy)                                                                            \
    _Generic((copy),                                                                               \
        const CUDA_MEMCPY2D *: plane,                                                              \
        const CUDA_MEMCPY2D_v1 *: plane_v1,                                                        \
        const CUDA_MEMCPY3D *: box,                                                                \
        const CUDA_MEMCPY3D_v1 *: box_v1,                                                          \
        const CUDA_MEMCPY3D_PEER *: peer_box)(copy)

/* The first copy decides for all. Elements of arrays are counted as bytes. */
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

/* A function that moves memory in the order of a stream, or at once if it takes none. */
#define CUDA_HOOK_COPIES(fn, null, stream, in_order, move, parameters, arguments)                  \
    CUresult fn parameters {                                                                       \
        struct copy copying;                                                                       \
        if (!launch_counts()) {                                                                    \
            return DV_REAL(fn) arguments;                                                          \
        }                                                                                          \
        CUresult result = copy_begin(&copying, launch_##null(stream), move, !(in_order));          \
        if (result == CUDA_SUCCESS) {                                                              \
            NAMED(&copying.launch, arguments);                                                     \
            result = DV_CALL(fn, ARGUMENTS arguments);                                             \
        }                                                                                          \
        copy_end(&copying, result);                                                                \
        return result;                                                                             \
    }
#include "abi/generated/cuda_hooks.inc"
