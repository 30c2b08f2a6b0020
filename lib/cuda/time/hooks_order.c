/*
 * What takes its place in a stream and is not work of the GPU's multiprocessors: host functions,
 * waits, writes that others wait for, migrations. None of it is ever held up: the batch before it
 * ends there, because its time is not ours to charge.
 */
#include "cuda/time/launch.h"

#define FOLLOWS(fn, stream_of, parameters, ...)                                                    \
    CUresult fn parameters {                                                                       \
        if (launch_counts()) {                                                                     \
            launch_follows(stream_of(stream));                                                     \
        }                                                                                          \
        return DV_REAL(fn)(__VA_ARGS__);                                                           \
    }

FOLLOWS(cuLaunchHostFunc, launch_legacy, (CUstream stream, CUhostFn function, void *data), stream,
        function, data)
FOLLOWS(cuLaunchHostFunc_ptsz, launch_own, (CUstream stream, CUhostFn function, void *data), stream,
        function, data)
FOLLOWS(cuLaunchHostFunc_v2, launch_legacy,
        (CUstream stream, CUhostFn function, void *data, unsigned mode), stream, function, data,
        mode)
FOLLOWS(cuLaunchHostFunc_v2_ptsz, launch_own,
        (CUstream stream, CUhostFn function, void *data, unsigned mode), stream, function, data,
        mode)
FOLLOWS(cuStreamAddCallback, launch_legacy,
        (CUstream stream, CUstreamCallback callback, void *data, unsigned flags), stream, callback,
        data, flags)
FOLLOWS(cuStreamAddCallback_ptsz, launch_own,
        (CUstream stream, CUstreamCallback callback, void *data, unsigned flags), stream, callback,
        data, flags)
FOLLOWS(cuStreamWaitEvent, launch_legacy, (CUstream stream, CUevent event, unsigned flags), stream,
        event, flags)
FOLLOWS(cuStreamWaitEvent_ptsz, launch_own, (CUstream stream, CUevent event, unsigned flags),
        stream, event, flags)
FOLLOWS(cuStreamWaitValue32, launch_legacy,
        (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags), stream, address,
        value, flags)
FOLLOWS(cuStreamWaitValue32_ptsz, launch_own,
        (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags), stream, address,
        value, flags)
FOLLOWS(cuStreamWaitValue32_v2, launch_legacy,
        (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags), stream, address,
        value, flags)
FOLLOWS(cuStreamWaitValue32_v2_ptsz, launch_own,
        (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags), stream, address,
        value, flags)
FOLLOWS(cuStreamWaitValue64, launch_legacy,
        (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags), stream, address,
        value, flags)
FOLLOWS(cuStreamWaitValue64_ptsz, launch_own,
        (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags), stream, address,
        value, flags)
FOLLOWS(cuStreamWaitValue64_v2, launch_legacy,
        (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags), stream, address,
        value, flags)
FOLLOWS(cuStreamWaitValue64_v2_ptsz, launch_own,
        (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags), stream, address,
        value, flags)
FOLLOWS(cuStreamWriteValue32, launch_legacy,
        (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags), stream, address,
        value, flags)
FOLLOWS(cuStreamWriteValue32_ptsz, launch_own,
        (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags), stream, address,
        value, flags)
FOLLOWS(cuStreamWriteValue32_v2, launch_legacy,
        (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags), stream, address,
        value, flags)
FOLLOWS(cuStreamWriteValue32_v2_ptsz, launch_own,
        (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags), stream, address,
        value, flags)
FOLLOWS(cuStreamWriteValue64, launch_legacy,
        (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags), stream, address,
        value, flags)
FOLLOWS(cuStreamWriteValue64_ptsz, launch_own,
        (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags), stream, address,
        value, flags)
FOLLOWS(cuStreamWriteValue64_v2, launch_legacy,
        (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags), stream, address,
        value, flags)
FOLLOWS(cuStreamWriteValue64_v2_ptsz, launch_own,
        (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags), stream, address,
        value, flags)
FOLLOWS(cuStreamBatchMemOp, launch_legacy,
        (CUstream stream, unsigned count, CUstreamBatchMemOpParams *operations, unsigned flags),
        stream, count, operations, flags)
FOLLOWS(cuStreamBatchMemOp_ptsz, launch_own,
        (CUstream stream, unsigned count, CUstreamBatchMemOpParams *operations, unsigned flags),
        stream, count, operations, flags)
FOLLOWS(cuStreamBatchMemOp_v2, launch_legacy,
        (CUstream stream, unsigned count, CUstreamBatchMemOpParams *operations, unsigned flags),
        stream, count, operations, flags)
FOLLOWS(cuStreamBatchMemOp_v2_ptsz, launch_own,
        (CUstream stream, unsigned count, CUstreamBatchMemOpParams *operations, unsigned flags),
        stream, count, operations, flags)
FOLLOWS(cuSignalExternalSemaphoresAsync, launch_legacy,
        (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params,
         unsigned count, CUstream stream),
        semaphores, params, count, stream)
FOLLOWS(cuSignalExternalSemaphoresAsync_ptsz, launch_own,
        (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params,
         unsigned count, CUstream stream),
        semaphores, params, count, stream)
FOLLOWS(cuWaitExternalSemaphoresAsync, launch_legacy,
        (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params,
         unsigned count, CUstream stream),
        semaphores, params, count, stream)
FOLLOWS(cuWaitExternalSemaphoresAsync_ptsz, launch_own,
        (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params,
         unsigned count, CUstream stream),
        semaphores, params, count, stream)
FOLLOWS(cuGraphicsMapResources, launch_legacy,
        (unsigned count, CUgraphicsResource *resources, CUstream stream), count, resources, stream)
FOLLOWS(cuGraphicsMapResources_ptsz, launch_own,
        (unsigned count, CUgraphicsResource *resources, CUstream stream), count, resources, stream)
FOLLOWS(cuGraphicsUnmapResources, launch_legacy,
        (unsigned count, CUgraphicsResource *resources, CUstream stream), count, resources, stream)
FOLLOWS(cuGraphicsUnmapResources_ptsz, launch_own,
        (unsigned count, CUgraphicsResource *resources, CUstream stream), count, resources, stream)
FOLLOWS(cuStreamAttachMemAsync, launch_legacy,
        (CUstream stream, CUdeviceptr address, size_t bytes, unsigned flags), stream, address,
        bytes, flags)
FOLLOWS(cuStreamAttachMemAsync_ptsz, launch_own,
        (CUstream stream, CUdeviceptr address, size_t bytes, unsigned flags), stream, address,
        bytes, flags)
FOLLOWS(cuMemPrefetchAsync, launch_legacy,
        (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream), address, bytes,
        device, stream)
FOLLOWS(cuMemPrefetchAsync_ptsz, launch_own,
        (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream), address, bytes,
        device, stream)
FOLLOWS(cuMemPrefetchAsync_v2, launch_legacy,
        (CUdeviceptr address, size_t bytes, CUmemLocation to, unsigned flags, CUstream stream),
        address, bytes, to, flags, stream)
FOLLOWS(cuMemPrefetchAsync_v2_ptsz, launch_own,
        (CUdeviceptr address, size_t bytes, CUmemLocation to, unsigned flags, CUstream stream),
        address, bytes, to, flags, stream)
FOLLOWS(cuMemPrefetchBatchAsync, launch_legacy,
        (CUdeviceptr * addresses, size_t *bytes, size_t count, CUmemLocation *to, size_t *places,
         size_t place_count, unsigned long long flags, CUstream stream),
        addresses, bytes, count, to, places, place_count, flags, stream)
FOLLOWS(cuMemPrefetchBatchAsync_ptsz, launch_own,
        (CUdeviceptr * addresses, size_t *bytes, size_t count, CUmemLocation *to, size_t *places,
         size_t place_count, unsigned long long flags, CUstream stream),
        addresses, bytes, count, to, places, place_count, flags, stream)
FOLLOWS(cuMemDiscardBatchAsync, launch_legacy,
        (CUdeviceptr * addresses, size_t *bytes, size_t count, unsigned long long flags,
         CUstream stream),
        addresses, bytes, count, flags, stream)
FOLLOWS(cuMemDiscardBatchAsync_ptsz, launch_own,
        (CUdeviceptr * addresses, size_t *bytes, size_t count, unsigned long long flags,
         CUstream stream),
        addresses, bytes, count, flags, stream)
FOLLOWS(cuMemDiscardAndPrefetchBatchAsync, launch_legacy,
        (CUdeviceptr * addresses, size_t *bytes, size_t count, CUmemLocation *to, size_t *places,
         size_t place_count, unsigned long long flags, CUstream stream),
        addresses, bytes, count, to, places, place_count, flags, stream)
FOLLOWS(cuMemDiscardAndPrefetchBatchAsync_ptsz, launch_own,
        (CUdeviceptr * addresses, size_t *bytes, size_t count, CUmemLocation *to, size_t *places,
         size_t place_count, unsigned long long flags, CUstream stream),
        addresses, bytes, count, to, places, place_count, flags, stream)
FOLLOWS(cuMemBatchDecompressAsync, launch_legacy,
        (CUmemDecompressParams * params, size_t count, unsigned flags, size_t *failed,
         CUstream stream),
        params, count, flags, failed, stream)
FOLLOWS(cuMemBatchDecompressAsync_ptsz, launch_own,
        (CUmemDecompressParams * params, size_t count, unsigned flags, size_t *failed,
         CUstream stream),
        params, count, flags, failed, stream)
FOLLOWS(cuFabricCpyBatchAsync, launch_legacy,
        (size_t count, CUDA_FABRIC_COPY_BATCH_OP *copies, unsigned long long flags,
         CUstream stream),
        count, copies, flags, stream)
FOLLOWS(cuFabricCpyBatchAsync_ptsz, launch_own,
        (size_t count, CUDA_FABRIC_COPY_BATCH_OP *copies, unsigned long long flags,
         CUstream stream),
        count, copies, flags, stream)
