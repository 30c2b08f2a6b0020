/* A program's side of the real thing: the client library, a worker on this host, and the simulated driver behind it; or the
 * simulated driver alone. */
#ifndef DIVVY_REMOTE_TEST_WHOLE_H
#define DIVVY_REMOTE_TEST_WHOLE_H

#include "abi/generated/cuda_functions.h"

#include <stdbool.h>
#include <sys/types.h>

/* The functions that tests of graphs and of functions of the program call. */
#define WHOLE_FUNCTIONS(X)                                                                                                           \
    X(cuInit)                                                                                                                        \
    X(cuDeviceGet)                                                                                                                   \
    X(cuCtxCreate_v2)                                                                                                                \
    X(cuCtxDestroy_v2)                                                                                                               \
    X(cuCtxSetCurrent)                                                                                                               \
    X(cuCtxSynchronize)                                                                                                              \
    X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemsetD8_v2) X(cuMemsetD32Async) X(cuMemcpyDtoH_v2) X(                                      \
        cuMemcpyHtoD_v2) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemcpyDtoHAsync_v2)                                                  \
        X(cuMemcpyDtoDAsync_v2) X(cuStreamCreate) X(cuStreamDestroy_v2) X(cuStreamSynchronize) X(                                    \
            cuStreamQuery) X(cuStreamWaitEvent) X(cuEventCreate) X(cuEventRecord) X(cuEventQuery)                                    \
            X(cuEventSynchronize) X(cuLaunchHostFunc) X(cuLaunchHostFunc_v2) X(cuStreamAddCallback) X(                               \
                cuUserObjectCreate) X(cuThreadExchangeStreamCaptureMode) X(cuStreamBeginCapture_v2)                                  \
                X(cuStreamEndCapture) X(cuStreamIsCapturing) X(cuStreamGetCaptureInfo_v2) X(                                         \
                    cuStreamGetCaptureInfo_v3) X(cuStreamUpdateCaptureDependencies) X(cuGraphCreate)                                 \
                    X(cuGraphDestroy) X(cuGraphClone) X(cuGraphAddNode) X(cuGraphAddNode_v2) X(                                      \
                        cuGraphAddEmptyNode) X(cuGraphAddMemsetNode) X(cuGraphAddMemcpyNode)                                         \
                        X(cuGraphAddHostNode) X(cuGraphAddEventRecordNode) X(cuGraphAddEventWaitNode) X(                             \
                            cuGraphAddBatchMemOpNode) X(cuGraphAddMemAllocNode) X(cuGraphAddMemFreeNode)                             \
                            X(cuGraphAddChildGraphNode) X(cuGraphAddKernelNode) X(                                                   \
                                cuGraphAddKernelNode_v2) X(cuGraphAddDependencies) X(cuGraphRemoveDependencies)                      \
                                X(cuGraphGetNodes) X(cuGraphGetEdges) X(cuGraphGetRootNodes) X(                                      \
                                    cuGraphNodeGetType) X(cuGraphNodeGetDependencies) X(cuGraphDestroyNode)                          \
                                    X(cuGraphMemsetNodeGetParams) X(cuGraphMemcpyNodeGetParams) X(                                   \
                                        cuGraphMemcpyNodeSetParams) X(cuGraphHostNodeGetParams)                                      \
                                        X(cuGraphHostNodeSetParams) X(cuGraphBatchMemOpNodeGetParams) X(                             \
                                            cuGraphBatchMemOpNodeSetParams) X(cuGraphMemAllocNodeGetParams)                          \
                                            X(cuGraphKernelNodeGetParams) X(cuGraphKernelNodeGetParams_v2) X(                        \
                                                cuGraphKernelNodeSetParams_v2) X(cuGraphKernelNodeGetAttribute)                      \
                                                X(cuGraphKernelNodeSetAttribute) X(                                                  \
                                                    cuGraphNodeSetParams) X(cuGraphNodeGetParams)                                    \
                                                    X(cuGraphInstantiateWithFlags) X(cuGraphExecDestroy) X(                          \
                                                        cuGraphLaunch) X(cuGraphExecUpdate_v2)                                       \
                                                        X(cuGraphExecHostNodeSetParams) X(                                           \
                                                            cuGraphExecMemcpyNodeSetParams)                                          \
                                                            X(cuGraphExecKernelNodeSetParams_v2) X(                                  \
                                                                cuGraphExecBatchMemOpNodeSetParams)                                  \
                                                                X(cuGraphExecNodeSetParams) X(                                       \
                                                                    cuModuleLoadData) X(cuModuleUnload)                              \
                                                                    X(cuModuleGetFunction) X(                                        \
                                                                        cuLibraryLoadData) X(cuLibraryGetKernel)                     \
                                                                        X(cuLaunchKernel) X(                                         \
                                                                            cuMemPoolCreate) X(cuMemPoolDestroy)                     \
                                                                            X(cuMemPoolGetAttribute) X(                              \
                                                                                cuMemPoolSetAttribute)                               \
                                                                                X(cuMemAllocAsync) X(                                \
                                                                                    cuMemFreeAsync)                                  \
                                                                                    X(cuOccupancyMaxPotentialBlockSize)              \
                                                                                        X(cuOccupancyMaxPotentialBlockSizeWithFlags) \
                                                                                            X(cuOccupancyMaxActiveClusters)          \
                                                                                                X(cuOccupancyMaxPotentialClusterSize)

#define WHOLE_POINTER(name) __typeof__(name) *name;
struct whole {
    WHOLE_FUNCTIONS(WHOLE_POINTER)
};
extern struct whole cu;

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)

/* Describes a machine, and starts a worker's listener that ends with this process. Called once, before any of the
 * following, in a process that has no driver loaded. */
void whole_start(void);
/* Loads the simulated driver, or the client. The process can do this once. */
void whole_load(bool remote);
/* Runs a function in a process of its own, with the driver or the client loaded. How it ended, as waitpid tells it. */
int whole_run(bool remote, void (*run)(void *argument), void *argument);
/* Memory that such processes write for this one. */
void *whole_share(size_t size);
/* Waits until no process has a worker any more. */
void whole_await_no_worker(void);
/* Kills the worker of the calling process. */
void whole_kill_worker(void);

#endif
