/* The interfaces of before CUDA 3.2: sizes and device addresses have 32 bits. Memory that they
 * allocate lies below 4 GiB, in blocks of its own; the newer interfaces take it too. */
#include "simgpu/cuda/driver.h"

#include <string.h>

static CUresult allocate(CUcontext ctx, CUdeviceptr_v1 *out, uint64_t bytes) {
    struct range *range;

    SG_TRY(capture_allows(ctx));
    sg_burn(sg_driver.machine->alloc_ns);
    sg_memory_lock();
    CUresult result = range_new(ctx->device, ctx, RANGE_NARROW, SG_LINEAR, bytes, &range);
    if (result == CUDA_SUCCESS) {
        *out = (CUdeviceptr_v1)range->base;
    }
    sg_memory_unlock();
    return result;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *out, unsigned int bytes) {
    SG_ENTER(ctx, SG_FAULT_ALLOC)
    SG_REQUIRE(out && bytes, CUDA_ERROR_INVALID_VALUE);
    return allocate(ctx, out, bytes);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *out, unsigned int *pitch, unsigned int width,
                         unsigned int height, unsigned int element) {
    SG_ENTER(ctx, SG_FAULT_ALLOC)
    SG_REQUIRE(out && pitch && width && height && (element == 4 || element == 8 || element == 16),
               CUDA_ERROR_INVALID_VALUE);
    uint64_t row = ((uint64_t)width + SG_PITCH - 1) / SG_PITCH * SG_PITCH;
    SG_TRY(allocate(ctx, out, row * height));
    *pitch = (unsigned)row;
    return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr_v1 address) {
    return cuMemFree_v2(address);
}

CUresult cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned int *bytes, CUdeviceptr_v1 address) {
    CUdeviceptr wide_base;
    size_t wide_bytes;

    SG_REQUIRE(base || bytes, CUDA_SUCCESS);
    SG_TRY(cuMemGetAddressRange_v2(&wide_base, &wide_bytes, address));
    if (base) {
        *base = (CUdeviceptr_v1)wide_base;
    }
    if (bytes) {
        *bytes = (unsigned)wide_bytes;
    }
    return CUDA_SUCCESS;
}

/* Host memory lies above 4 GiB, so that its address on the device does too. */
CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1 *out, void *address, unsigned int flags) {
    CUdeviceptr wide;

    SG_READY();
    SG_REQUIRE(out, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(cuMemHostGetDevicePointer_v2(&wide, address, flags));
    SG_REQUIRE(wide <= UINT32_MAX, CUDA_ERROR_NOT_SUPPORTED);
    *out = (CUdeviceptr_v1)wide;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal(CUdeviceptr_v1 *address, unsigned int *bytes, CUmodule module,
                           const char *name) {
    CUdeviceptr wide_address;
    size_t wide_bytes;

    SG_READY();
    SG_REQUIRE(address || bytes, CUDA_ERROR_INVALID_VALUE);
    return cuModuleGetGlobal_v2(&wide_address, &wide_bytes, module, name);
}

/* Copies and fills whose newer form takes the same arguments, wider. */

CUresult cuMemcpyHtoD(CUdeviceptr_v1 to, const void *from, unsigned int n) {
    return cuMemcpyHtoD_v2(to, from, n);
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr_v1 from, unsigned int n) {
    return cuMemcpyDtoH_v2(to, from, n);
}

CUresult cuMemcpyDtoD(CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned int n) {
    return cuMemcpyDtoD_v2(to, from, n);
}

CUresult cuMemcpyDtoA(CUarray to, unsigned int at, CUdeviceptr_v1 from, unsigned int n) {
    return cuMemcpyDtoA_v2(to, at, from, n);
}

CUresult cuMemcpyAtoD(CUdeviceptr_v1 to, CUarray from, unsigned int at, unsigned int n) {
    return cuMemcpyAtoD_v2(to, from, at, n);
}

CUresult cuMemcpyHtoA(CUarray to, unsigned int at, const void *from, unsigned int n) {
    return cuMemcpyHtoA_v2(to, at, from, n);
}

CUresult cuMemcpyAtoH(void *to, CUarray from, unsigned int at, unsigned int n) {
    return cuMemcpyAtoH_v2(to, from, at, n);
}

CUresult cuMemcpyAtoA(CUarray to, unsigned int at, CUarray from, unsigned int there,
                      unsigned int n) {
    return cuMemcpyAtoA_v2(to, at, from, there, n);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1 to, const void *from, unsigned int n, CUstream s) {
    return cuMemcpyHtoDAsync_v2(to, from, n, s);
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr_v1 from, unsigned int n, CUstream s) {
    return cuMemcpyDtoHAsync_v2(to, from, n, s);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned int n, CUstream s) {
    return cuMemcpyDtoDAsync_v2(to, from, n, s);
}

CUresult cuMemcpyHtoAAsync(CUarray to, unsigned int at, const void *from, unsigned int n,
                           CUstream s) {
    return cuMemcpyHtoAAsync_v2(to, at, from, n, s);
}

CUresult cuMemcpyAtoHAsync(void *to, CUarray from, unsigned int at, unsigned int n, CUstream s) {
    return cuMemcpyAtoHAsync_v2(to, from, at, n, s);
}

CUresult cuMemsetD8(CUdeviceptr_v1 to, unsigned char value, unsigned int n) {
    return cuMemsetD8_v2(to, value, n);
}

CUresult cuMemsetD16(CUdeviceptr_v1 to, unsigned short value, unsigned int n) {
    return cuMemsetD16_v2(to, value, n);
}

CUresult cuMemsetD32(CUdeviceptr_v1 to, unsigned int value, unsigned int n) {
    return cuMemsetD32_v2(to, value, n);
}

CUresult cuMemsetD2D8(CUdeviceptr_v1 to, unsigned int pitch, unsigned char value, unsigned int w,
                      unsigned int h) {
    return cuMemsetD2D8_v2(to, pitch, value, w, h);
}

CUresult cuMemsetD2D16(CUdeviceptr_v1 to, unsigned int pitch, unsigned short value, unsigned int w,
                       unsigned int h) {
    return cuMemsetD2D16_v2(to, pitch, value, w, h);
}

CUresult cuMemsetD2D32(CUdeviceptr_v1 to, unsigned int pitch, unsigned int value, unsigned int w,
                       unsigned int h) {
    return cuMemsetD2D32_v2(to, pitch, value, w, h);
}

/* Descriptions. */

#define WIDEN_SIDES(w)                                                                             \
    .srcXInBytes = (w)->srcXInBytes, .srcY = (w)->srcY, .srcMemoryType = (w)->srcMemoryType,       \
    .srcHost = (w)->srcHost, .srcDevice = (w)->srcDevice, .srcArray = (w)->srcArray,               \
    .srcPitch = (w)->srcPitch, .dstXInBytes = (w)->dstXInBytes, .dstY = (w)->dstY,                 \
    .dstMemoryType = (w)->dstMemoryType, .dstHost = (w)->dstHost, .dstDevice = (w)->dstDevice,     \
    .dstArray = (w)->dstArray, .dstPitch = (w)->dstPitch, .WidthInBytes = (w)->WidthInBytes,       \
    .Height = (w)->Height

static CUDA_MEMCPY2D widen_2d(const CUDA_MEMCPY2D_v1 *w) {
    return (CUDA_MEMCPY2D){WIDEN_SIDES(w)};
}

static CUDA_MEMCPY3D widen_3d(const CUDA_MEMCPY3D_v1 *w) {
    return (CUDA_MEMCPY3D){
        WIDEN_SIDES(w),  .srcZ = w->srcZ,     .srcLOD = w->srcLOD,       .srcHeight = w->srcHeight,
        .dstZ = w->dstZ, .dstLOD = w->dstLOD, .dstHeight = w->dstHeight, .Depth = w->Depth};
}

#define SHAPED(name, widen)                                                                        \
    CUresult name(const CUDA_##widen##_v1 *what) {                                                 \
        SG_READY();                                                                                \
        SG_REQUIRE(what, CUDA_ERROR_INVALID_VALUE);                                                \
        CUDA_##widen wide = WIDEN_##widen(what);                                                   \
        return name##_v2(&wide);                                                                   \
    }
#define SHAPED_ASYNC(name, widen)                                                                  \
    CUresult name(const CUDA_##widen##_v1 *what, CUstream stream) {                                \
        SG_READY();                                                                                \
        SG_REQUIRE(what, CUDA_ERROR_INVALID_VALUE);                                                \
        CUDA_##widen wide = WIDEN_##widen(what);                                                   \
        return name##_v2(&wide, stream);                                                           \
    }
#define WIDEN_MEMCPY2D widen_2d
#define WIDEN_MEMCPY3D widen_3d

SHAPED(cuMemcpy2D, MEMCPY2D)
SHAPED(cuMemcpy2DUnaligned, MEMCPY2D)
SHAPED_ASYNC(cuMemcpy2DAsync, MEMCPY2D)
SHAPED(cuMemcpy3D, MEMCPY3D)
SHAPED_ASYNC(cuMemcpy3DAsync, MEMCPY3D)

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *what) {
    SG_READY();
    SG_REQUIRE(what, CUDA_ERROR_INVALID_VALUE);
    return cuArrayCreate_v2(array, &(CUDA_ARRAY_DESCRIPTOR){what->Width, what->Height, what->Format,
                                                            what->NumChannels});
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *what) {
    SG_READY();
    SG_REQUIRE(what, CUDA_ERROR_INVALID_VALUE);
    return cuArray3DCreate_v2(array, &(CUDA_ARRAY3D_DESCRIPTOR){what->Width, what->Height,
                                                                what->Depth, what->Format,
                                                                what->NumChannels, what->Flags});
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *what, CUarray array) {
    CUDA_ARRAY3D_DESCRIPTOR wide;

    SG_REQUIRE(array, CUDA_ERROR_INVALID_HANDLE);
    SG_REQUIRE(what, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(cuArray3DGetDescriptor_v2(&wide, array));
    *what = (CUDA_ARRAY3D_DESCRIPTOR_v1){(unsigned)wide.Width, (unsigned)wide.Height,
                                         (unsigned)wide.Depth, wide.Format,
                                         wide.NumChannels,     wide.Flags};
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *what, CUarray array) {
    CUDA_ARRAY_DESCRIPTOR wide;

    SG_REQUIRE(array, CUDA_ERROR_INVALID_HANDLE);
    SG_REQUIRE(what, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(cuArrayGetDescriptor_v2(&wide, array));
    *what = (CUDA_ARRAY_DESCRIPTOR_v1){(unsigned)wide.Width, (unsigned)wide.Height, wide.Format,
                                       wide.NumChannels};
    return CUDA_SUCCESS;
}
