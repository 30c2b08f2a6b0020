/*
 * gpuprobe asks one driver what only a driver with a GPU can answer, for the test in test/gpu. Each
 * command prints JSON objects, one in each line, of which the last is the answer. It runs the same
 * natively and in a share; who compares is the caller. Functions are resolved by name, and one that
 * an old driver lacks is NULL here.
 */
#ifndef GPUPROBE_PROBE_H
#define GPUPROBE_PROBE_H

#include "abi/cuda/types.h"
#include "abi/nvml/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROBE_CUDA(X)                                                                              \
    X(cuInit, (unsigned))                                                                          \
    X(cuDriverGetVersion, (int *))                                                                 \
    X(cuGetErrorName, (CUresult, const char **))                                                   \
    X(cuDeviceGet, (CUdevice *, int))                                                              \
    X(cuDeviceGetAttribute, (int *, CUdevice_attribute, CUdevice))                                 \
    X(cuDeviceGetUuid, (CUuuid *, CUdevice))                                                       \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                           \
    X(cuCtxSetCurrent, (CUcontext))                                                                \
    X(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice))                                           \
    X(cuCtxDestroy_v2, (CUcontext))                                                                \
    X(cuCtxSynchronize, (void))                                                                    \
    X(cuMemGetInfo_v2, (size_t *, size_t *))                                                       \
    X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                      \
    X(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned))                                        \
    X(cuMemPrefetchAsync, (CUdeviceptr, size_t, CUdevice, CUstream))                               \
    X(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))                                        \
    X(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                              \
    X(cuCheckpointProcessLock, (int, CUcheckpointLockArgs *))                                      \
    X(cuCheckpointProcessCheckpoint, (int, CUcheckpointCheckpointArgs *))                          \
    X(cuCheckpointProcessRestore, (int, CUcheckpointRestoreArgs *))                                \
    X(cuCheckpointProcessUnlock, (int, CUcheckpointUnlockArgs *))                                  \
    X(cuMemCreate,                                                                                 \
      (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long))   \
    X(cuMemRelease, (CUmemGenericAllocationHandle))                                                \
    X(cuMemExportToShareableHandle,                                                                \
      (void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long))       \
    X(cuModuleLoadData, (CUmodule *, const void *))                                                \
    X(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                 \
    X(cuModuleGetLoadingMode, (CUmoduleLoadingMode *))                                             \
    X(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
                       unsigned, CUstream, void **, void **))                                      \
    X(cuStreamCreate, (CUstream *, unsigned))                                                      \
    X(cuStreamDestroy_v2, (CUstream))                                                              \
    X(cuStreamQuery, (CUstream))                                                                   \
    X(cuStreamSynchronize, (CUstream))                                                             \
    X(cuEventCreate, (CUevent *, unsigned))                                                        \
    X(cuEventDestroy_v2, (CUevent))                                                                \
    X(cuEventRecord, (CUevent, CUstream))                                                          \
    X(cuEventQuery, (CUevent))                                                                     \
    X(cuEventSynchronize, (CUevent))                                                               \
    X(cuGetProcAddress_v2,                                                                         \
      (const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *))

struct cuda {
    void *library;
#define PROBE_FIELD(name, parameters) CUresult(*name) parameters;
    PROBE_CUDA(PROBE_FIELD)
#undef PROBE_FIELD
};
extern struct cuda cuda;

#define PROBE_NVML(X)                                                                              \
    X(nvmlInit_v2, (void))                                                                         \
    X(nvmlShutdown, (void))                                                                        \
    X(nvmlSystemGetDriverVersion, (char *, unsigned))                                              \
    X(nvmlSystemGetCudaDriverVersion, (int *))                                                     \
    X(nvmlDeviceGetCount_v2, (unsigned *))                                                         \
    X(nvmlDeviceGetHandleByIndex_v2, (unsigned, nvmlDevice_t *))                                   \
    X(nvmlDeviceGetHandleByUUID, (const char *, nvmlDevice_t *))                                   \
    X(nvmlDeviceGetUUID, (nvmlDevice_t, char *, unsigned))                                         \
    X(nvmlDeviceGetName, (nvmlDevice_t, char *, unsigned))                                         \
    X(nvmlDeviceGetMemoryInfo, (nvmlDevice_t, nvmlMemory_t *))                                     \
    X(nvmlDeviceGetComputeMode, (nvmlDevice_t, int *))                                             \
    X(nvmlDeviceGetMigMode, (nvmlDevice_t, unsigned *, unsigned *))                                \
    X(nvmlDeviceGetMaxMigDeviceCount, (nvmlDevice_t, unsigned *))                                  \
    X(nvmlDeviceGetMigDeviceHandleByIndex, (nvmlDevice_t, unsigned, nvmlDevice_t *))               \
    X(nvmlDeviceGetGpuInstanceProfileInfoV,                                                        \
      (nvmlDevice_t, unsigned, nvmlGpuInstanceProfileInfo_v2_t *))                                 \
    X(nvmlDeviceGetGpuInstancePossiblePlacements_v2,                                               \
      (nvmlDevice_t, unsigned, nvmlGpuInstancePlacement_t *, unsigned *))                          \
    X(nvmlDeviceCreateGpuInstance, (nvmlDevice_t, unsigned, nvmlGpuInstance_t *))                  \
    X(nvmlGpuInstanceCreateComputeInstance,                                                        \
      (nvmlGpuInstance_t, unsigned, nvmlComputeInstance_t *))                                      \
    X(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t, int *, int *))                            \
    X(nvmlDeviceGetUtilizationRates, (nvmlDevice_t, nvmlUtilization_t *))                          \
    X(nvmlDeviceGetProcessUtilization,                                                             \
      (nvmlDevice_t, nvmlProcessUtilizationSample_t *, unsigned *, unsigned long long))            \
    X(nvmlDeviceGetComputeRunningProcesses_v2, (nvmlDevice_t, unsigned *, nvmlProcessInfo_t *))    \
    X(nvmlDeviceGetComputeRunningProcesses_v3, (nvmlDevice_t, unsigned *, nvmlProcessInfo_t *))

struct nvml {
#define PROBE_FIELD(name, parameters) nvmlReturn_t(*name) parameters;
    PROBE_NVML(PROBE_FIELD)
#undef PROBE_FIELD
};
extern struct nvml nvml;

/* Opens libcuda.so.1 or libnvidia-ml.so.1 and resolves the functions; false where there is none, or
 * where it lacks one of the first seven, which every driver has. */
bool open_cuda(void);
bool open_nvml(void);

/* The first device that CUDA shows, with its primary context current. */
CUresult start_cuda(CUdevice *device);

/* The CUDA name of a result; never NULL. */
const char *result_name(CUresult result);

/* The processes on a GPU by NVML: at most `room` of them. */
enum { PROCESSES_MAX = 512 };
nvmlReturn_t running(nvmlDevice_t gpu, unsigned *count, nvmlProcessInfo_t *list);

/* Whether NVML is a simulated machine's, also where it was found by the caller's environment. */
bool simulated(void);

/* NVML's handle of a CUDA device; NULL where there is none. */
nvmlDevice_t device_in_nvml(CUdevice device);

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t now_ns(void);

/* Waits until standard input ends. Who wants no pause gives /dev/null. */
void await_end_of_input(void);

/* The commands. Each returns the exit status: 0 answered, 1 the driver refused, 3 no driver. */
int command_machine(void);
int command_keep(void);
int command_processes(void);
int command_cost(void);
int command_late(void);
int command_code(void);
int command_order(void);
int command_ended(void);
int command_exports(void);
int command_aliases(void);
int command_sms(void);
int command_managed(void);
int command_checkpoint(void);
int command_mig(void);
int command_divide(void);

#endif
