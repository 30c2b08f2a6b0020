/* Fills that name no stream. They do not wait, unless the memory is the host's: then they are done when they are back, because
 * the program may look at it at once. */
#include "remote/client/copies.h"
#include "remote/client/host.h"

static CUresult filled(CUresult result, CUdeviceptr at, CUstream stream) {
    struct remote_host found;

    return result == CUDA_SUCCESS && remote_host_find((const void *)(uintptr_t)at, &found)
               ? REMOTE_STUB(cuStreamSynchronize)(stream)
               : result;
}

#define FILL(name, PARAMS, ...)                                                                    \
    CUresult REMOTE_STUB(name) PARAMS {                                                            \
        return filled(remote_call_##name(__VA_ARGS__), at, NULL);                                  \
    }                                                                                              \
    CUresult REMOTE_STUB(name##_ptds) PARAMS {                                                     \
        return filled(remote_call_##name##_ptds(__VA_ARGS__), at, CU_STREAM_PER_THREAD);           \
    }
#define LINE(name, type) FILL(name, (CUdeviceptr at, type value, size_t n), at, value, n)
#define ROWS(name, type)                                                                           \
    FILL(name, (CUdeviceptr at, size_t pitch, type value, size_t width, size_t height), at, pitch, \
         value, width, height)

LINE(cuMemsetD8_v2, unsigned char)
LINE(cuMemsetD16_v2, unsigned short)
LINE(cuMemsetD32_v2, unsigned)
ROWS(cuMemsetD2D8_v2, unsigned char)
ROWS(cuMemsetD2D16_v2, unsigned short)
ROWS(cuMemsetD2D32_v2, unsigned)
