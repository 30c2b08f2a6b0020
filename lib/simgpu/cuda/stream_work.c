/* What streams are given besides launches and copies: host functions, and values in memory to wait
 * for and to write. */
#include "simgpu/cuda/driver.h"

static CUresult host_function(CUstream handle, CUhostFn function, void *data, bool ptds) {
    SG_STREAM(stream, handle, ptds);
    SG_REQUIRE(function, CUDA_ERROR_INVALID_VALUE);
    return sg_enqueue(stream, &(struct stream_op){.kind = OP_HOST, .host = {function, NULL, data}});
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
    return host_function(stream, function, data, false);
}

CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *data) {
    return host_function(stream, function, data, true);
}

/* The flags choose how the thread waits, which makes no visible difference. */
CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void *data, unsigned int flags) {
    (void)flags;
    return host_function(stream, function, data, false);
}

CUresult cuLaunchHostFunc_v2_ptsz(CUstream stream, CUhostFn function, void *data,
                                  unsigned int flags) {
    (void)flags;
    return host_function(stream, function, data, true);
}

static CUresult callback(CUstream handle, CUstreamCallback function, void *data, unsigned flags,
                         bool ptds) {
    SG_STREAM(stream, handle, ptds);
    SG_REQUIRE(function && flags == 0, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(!stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return sg_enqueue(stream, &(struct stream_op){.kind = OP_HOST, .host = {NULL, function, data}});
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function, void *data,
                             unsigned int flags) {
    return callback(stream, function, data, flags, false);
}

CUresult cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback function, void *data,
                                  unsigned int flags) {
    return callback(stream, function, data, flags, true);
}

static CUresult check_value(const CUstreamBatchMemOpParams *v) {
    bool wide = v->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                v->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;

    switch (v->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        SG_REQUIRE(v->waitValue.address % (wide ? 8 : 4) == 0 &&
                       sg_mapped(v->waitValue.address, wide ? 8 : 4),
                   CUDA_ERROR_INVALID_VALUE);
        return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
        return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_ATOMIC_REDUCTION:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult batch(CUstream handle, unsigned count, CUstreamBatchMemOpParams *list, bool ptds) {
    SG_STREAM(stream, handle, ptds);
    SG_REQUIRE(list && count && count <= 256, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++) {
        SG_TRY(check_value(&list[i]));
    }
    return sg_enqueue(stream, &(struct stream_op){.kind = OP_VALUES, .values = {count, list}});
}

static CUresult one(CUstream stream, CUstreamBatchMemOpType operation, CUdeviceptr address,
                    cuuint64_t value, unsigned flags, bool ptds) {
    CUstreamBatchMemOpParams params = {0};

    params.waitValue.operation = operation;
    params.waitValue.address = address;
    params.waitValue.value64 = value;
    params.waitValue.flags = flags;
    return batch(stream, 1, &params, ptds);
}

/* The four forms of one function: the interfaces of CUDA 8 and of 11.7, each with and without the
 * thread's own default stream. They differ only in the devices that support them. */
#define VALUE_ENTRY(name, type, operation, ptds)                                                   \
    CUresult name(CUstream stream, CUdeviceptr address, type value, unsigned int flags) {          \
        return one(stream, operation, address, value, flags, ptds);                                \
    }
#define VALUE_ENTRIES(name, type, operation)                                                       \
    VALUE_ENTRY(name, type, operation, false)                                                      \
    VALUE_ENTRY(name##_ptsz, type, operation, true)                                                \
    VALUE_ENTRY(name##_v2, type, operation, false)                                                 \
    VALUE_ENTRY(name##_v2_ptsz, type, operation, true)

VALUE_ENTRIES(cuStreamWaitValue32, cuuint32_t, CU_STREAM_MEM_OP_WAIT_VALUE_32)
VALUE_ENTRIES(cuStreamWaitValue64, cuuint64_t, CU_STREAM_MEM_OP_WAIT_VALUE_64)
VALUE_ENTRIES(cuStreamWriteValue32, cuuint32_t, CU_STREAM_MEM_OP_WRITE_VALUE_32)
VALUE_ENTRIES(cuStreamWriteValue64, cuuint64_t, CU_STREAM_MEM_OP_WRITE_VALUE_64)

#define BATCH_ENTRY(name, ptds)                                                                    \
    CUresult name(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list,             \
                  unsigned int flags) {                                                            \
        return flags ? CUDA_ERROR_INVALID_VALUE : batch(stream, count, list, ptds);                \
    }

BATCH_ENTRY(cuStreamBatchMemOp, false)
BATCH_ENTRY(cuStreamBatchMemOp_ptsz, true)
BATCH_ENTRY(cuStreamBatchMemOp_v2, false)
BATCH_ENTRY(cuStreamBatchMemOp_v2_ptsz, true)
