/* Copies of one row. The four forms of a function are: blocking, with and without the thread's own default stream, and with a
 * stream, likewise. A blocking copy from memory that the worker does not see returns, as the driver's do, when the bytes
 * have left the program's memory. */
#include "remote/client/copies.h"

static CUresult row(struct remote_side to, struct remote_side from, size_t bytes, CUstream stream,
                    bool waits) {
    struct remote_copying copy = {.call = REMOTE_cuMemcpyAsync,
                                  .waits = waits,
                                  .to = to,
                                  .from = from,
                                  .shape = {.WidthInBytes = bytes, .Height = 1, .Depth = 1},
                                  .pitch = bytes,
                                  .slice = bytes,
                                  .other_pitch = bytes,
                                  .other_slice = bytes,
                                  .extent = bytes,
                                  .stream = stream};

    return remote_copy(&copy);
}

/* What stands for the stream that is not named, or NULL, in a function for threads with a default stream of their own. */
#define OWN(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

#define SYNC(name, PARAMS, to, from, bytes)                                                        \
    CUresult REMOTE_STUB(name) PARAMS {                                                            \
        int32_t gate = remote_gate(REMOTE_##name);                                                 \
        return gate ? (CUresult)gate : row(to, from, bytes, NULL, true);                           \
    }                                                                                              \
    CUresult REMOTE_STUB(name##_ptds) PARAMS {                                                     \
        int32_t gate = remote_gate(REMOTE_##name);                                                 \
        return gate ? (CUresult)gate : row(to, from, bytes, CU_STREAM_PER_THREAD, true);           \
    }

#define OPEN(...) __VA_ARGS__, CUstream stream

#define ASYNC(name, PARAMS, to, from, bytes)                                                       \
    CUresult REMOTE_STUB(name)(OPEN PARAMS) {                                                      \
        int32_t gate = remote_gate(REMOTE_##name);                                                 \
        return gate ? (CUresult)gate : row(to, from, bytes, stream, false);                        \
    }                                                                                              \
    CUresult REMOTE_STUB(name##_ptsz)(OPEN PARAMS) {                                               \
        int32_t gate = remote_gate(REMOTE_##name);                                                 \
        return gate ? (CUresult)gate : row(to, from, bytes, OWN(stream), false);                   \
    }

SYNC(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t n), remote_side_unified(to, n),
     remote_side_unified(from, n), n)
ASYNC(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t n), remote_side_unified(to, n),
      remote_side_unified(from, n), n)
SYNC(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t n), remote_side_device(to, n),
     remote_side_host(from, n), n)
ASYNC(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t n), remote_side_device(to, n),
      remote_side_host(from, n), n)
SYNC(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t n), remote_side_host(to, n),
     remote_side_device(from, n), n)
ASYNC(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t n), remote_side_host(to, n),
      remote_side_device(from, n), n)
SYNC(cuMemcpyHtoA_v2, (CUarray to, size_t at, const void *from, size_t n),
     remote_side_array(to, at), remote_side_host(from, n), n)
ASYNC(cuMemcpyHtoAAsync_v2, (CUarray to, size_t at, const void *from, size_t n),
      remote_side_array(to, at), remote_side_host(from, n), n)
SYNC(cuMemcpyAtoH_v2, (void *to, CUarray from, size_t at, size_t n), remote_side_host(to, n),
     remote_side_array(from, at), n)
ASYNC(cuMemcpyAtoHAsync_v2, (void *to, CUarray from, size_t at, size_t n), remote_side_host(to, n),
      remote_side_array(from, at), n)

CUresult remote_copy_row(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return row(remote_side_unified(to, bytes), remote_side_unified(from, bytes), bytes, stream,
               false);
}
