/*
 * The part of the CUDA driver API that gpubench uses, resolved at run time with dlopen and dlsym,
 * the way most programs reach the driver. Nothing here knows about Divvy: gpubench runs the same on
 * a bare GPU, on simgpu, and inside a share.
 */
#ifndef GPUBENCH_DRIVER_H
#define GPUBENCH_DRIVER_H

#include "abi/cuda/types.h"

#include <stddef.h>
#include <stdint.h>

#define GPUBENCH_FUNCTIONS(X)                                                                      \
    X(cuInit, (unsigned))                                                                          \
    X(cuDriverGetVersion, (int *))                                                                 \
    X(cuGetErrorName, (CUresult, const char **))                                                   \
    X(cuDeviceGet, (CUdevice *, int))                                                              \
    X(cuDeviceGetCount, (int *))                                                                   \
    X(cuDeviceGetName, (char *, int, CUdevice))                                                    \
    X(cuDeviceTotalMem_v2, (size_t *, CUdevice))                                                   \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                           \
    X(cuCtxSetCurrent, (CUcontext))                                                                \
    X(cuCtxSynchronize, (void))                                                                    \
    X(cuMemGetInfo_v2, (size_t *, size_t *))                                                       \
    X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                      \
    X(cuMemFree_v2, (CUdeviceptr))                                                                 \
    X(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned))                     \
    X(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned))                                        \
    X(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream))                                          \
    X(cuMemFreeAsync, (CUdeviceptr, CUstream))                                                     \
    X(cuMemCreate,                                                                                 \
      (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long))   \
    X(cuMemRelease, (CUmemGenericAllocationHandle))                                                \
    X(cuArray3DCreate_v2, (CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *))                            \
    X(cuArrayDestroy, (CUarray))                                                                   \
    X(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))                                        \
    X(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                              \
    X(cuMemHostAlloc, (void **, size_t, unsigned))                                                 \
    X(cuMemFreeHost, (void *))                                                                     \
    X(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))                         \
    X(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                               \
    X(cuMemcpyDtoD_v2, (CUdeviceptr, CUdeviceptr, size_t))                                         \
    X(cuModuleLoadData, (CUmodule *, const void *))                                                \
    X(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                 \
    X(cuLibraryLoadData, (CUlibrary *, const void *, CUjit_option *, void **, unsigned,            \
                          CUlibraryOption *, void **, unsigned))                                   \
    X(cuLibraryGetKernel, (CUkernel *, CUlibrary, const char *))                                   \
    X(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
                       unsigned, CUstream, void **, void **))                                      \
    X(cuStreamCreate, (CUstream *, unsigned))                                                      \
    X(cuStreamDestroy_v2, (CUstream))                                                              \
    X(cuStreamSynchronize, (CUstream))                                                             \
    X(cuStreamBeginCapture_v2, (CUstream, CUstreamCaptureMode))                                    \
    X(cuStreamEndCapture, (CUstream, CUgraph *))                                                   \
    X(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))                   \
    X(cuGraphLaunch, (CUgraphExec, CUstream))                                                      \
    X(cuGraphExecDestroy, (CUgraphExec))                                                           \
    X(cuGraphDestroy, (CUgraph))                                                                   \
    X(cuEventCreate, (CUevent *, unsigned))                                                        \
    X(cuEventRecord, (CUevent, CUstream))                                                          \
    X(cuEventElapsedTime, (float *, CUevent, CUevent))

struct driver {
#define GPUBENCH_FIELD(name, parameters) CUresult(*name) parameters;
    GPUBENCH_FUNCTIONS(GPUBENCH_FIELD)
#undef GPUBENCH_FIELD
};

extern struct driver driver;

/* The CUDA name of a result, for messages and JSON; never NULL. */
const char *result_name(CUresult result);

/* Opens libcuda.so.1 and resolves every function; false with a message on stderr if that is
 * impossible. */
int driver_open(void);

/* Calls cuInit and makes the primary context of a device. Returns the first error. */
CUresult driver_start(int ordinal);

/* Kernels that gpubench launches. Each block of `busy` runs for a number of nanoseconds, which on a
 * real GPU also pass while other processes have it. Each block of `loop` runs for a number of
 * turns, so it does a fixed amount of work; on simgpu the machine file says how long a turn takes.
 * `await` runs until a word of memory has a value. */
struct kernels {
    CUfunction busy, loop, vecadd, fill, await;
};
CUresult kernels_load(struct kernels *kernels);

/* So many kernels that do the same as `busy` and differ in their names, from a module, or from a
 * library of which the driver loads each kernel when it is first launched. */
CUresult kernels_different(CUfunction *kernels, unsigned count, int lazily);

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t now_ns(void);

#endif
