/* cuMemset and its relatives. */
#include "simgpu/cuda/driver.h"

static CUresult give(struct fill fill, CUstream handle, bool ptds, bool sync, const char *name) {
    SG_GATE();
    CUstream stream;

    SG_TRY(sg_stream(handle, ptds, name, &stream));
    if (sync) {
        SG_TRY(capture_allows(stream->ctx));
    }
    SG_TRY(sg_enqueue(stream, &(struct stream_op){.kind = OP_FILL, .fill = fill}));
    return sync ? sg_drain(stream) : CUDA_SUCCESS;
}

/* Each width has a linear and a two-dimensional function, each with four forms. */
#define LINEAR(to, value, n, bytes) ((struct fill){(to), (n) * (bytes), (n), 1, (value), (bytes)})
#define SHAPED(to, pitch, value, w, h, bytes)                                                      \
    ((struct fill){(to), (pitch), (w), (h), (value), (bytes)})

#define ENTRIES(bits, type)                                                                        \
    CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t n) {                          \
        return give(LINEAR(to, value, n, bits / 8), NULL, false, true, __func__);                  \
    }                                                                                              \
    CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr to, type value, size_t n) {                     \
        return give(LINEAR(to, value, n, bits / 8), NULL, true, true, __func__);                   \
    }                                                                                              \
    CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t n, CUstream stream) {       \
        return give(LINEAR(to, value, n, bits / 8), stream, false, false, __func__);               \
    }                                                                                              \
    CUresult cuMemsetD##bits##Async_ptsz(CUdeviceptr to, type value, size_t n, CUstream stream) {  \
        return give(LINEAR(to, value, n, bits / 8), stream, true, false, __func__);                \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t w,            \
                                    size_t h) {                                                    \
        return give(SHAPED(to, pitch, value, w, h, bits / 8), NULL, false, true, __func__);        \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr to, size_t pitch, type value, size_t w,       \
                                         size_t h) {                                               \
        return give(SHAPED(to, pitch, value, w, h, bits / 8), NULL, true, true, __func__);         \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t w,          \
                                      size_t h, CUstream stream) {                                 \
        return give(SHAPED(to, pitch, value, w, h, bits / 8), stream, false, false, __func__);     \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr to, size_t pitch, type value, size_t w,     \
                                           size_t h, CUstream stream) {                            \
        return give(SHAPED(to, pitch, value, w, h, bits / 8), stream, true, false, __func__);      \
    }

ENTRIES(8, unsigned char)
ENTRIES(16, unsigned short)
ENTRIES(32, unsigned int)
