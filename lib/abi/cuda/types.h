/* Types of the CUDA driver's binary interface on 64-bit Linux, as far as Divvy
 * looks at them. Names, values and layouts are those of the CUDA driver API
 * documentation, CUDA 11 to 13; what Divvy only passes on stays incomplete. */
#ifndef DIVVY_ABI_CUDA_TYPES_H
#define DIVVY_ABI_CUDA_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
/* Device addresses of the interfaces from before CUDA 3.2 have 32 bits. */
typedef unsigned int CUdeviceptr_v1;

#define CU_DEVICE_CPU ((CUdevice) - 1)
#define CU_DEVICE_INVALID ((CUdevice) - 2)
#define CU_UUID_SIZE 16
#define CU_IPC_HANDLE_SIZE 64

typedef enum CUresult {
#define CUDA_RESULT(name, value) name = value,
#include "abi/cuda/results.inc"
#undef CUDA_RESULT
} CUresult;

typedef enum CUdevice_attribute {
#define CUDA_ATTRIBUTE(name, value) CU_DEVICE_ATTRIBUTE_##name = value,
#include "abi/cuda/attributes.inc"
#undef CUDA_ATTRIBUTE
} CUdevice_attribute;

/* Handles. */
typedef struct CUctx_st *CUcontext;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUtexref_st *CUtexref;
typedef struct CUsurfref_st *CUsurfref;
typedef struct CUevent_st *CUevent;
typedef struct CUstream_st *CUstream;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphDeviceUpdatableNode_st *CUgraphDeviceNode;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUuserObject_st *CUuserObject;
typedef struct CUlinkState_st *CUlinkState;
typedef struct CUgraphicsResource_st *CUgraphicsResource;
typedef struct CUextMemory_st *CUexternalMemory;
typedef struct CUextSemaphore_st *CUexternalSemaphore;
typedef struct CUasyncCallbackEntry_st *CUasyncCallbackHandle;
typedef struct CUlogsCallbackEntry_st *CUlogsCallbackHandle;
typedef struct CUcoredumpCallbackEntry_st *CUcoredumpCallbackHandle;
typedef struct CUcheckpointOperation_st *CUcheckpointOperationHandle;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef struct CUeglStreamConnection_st *CUeglStreamConnection;
typedef unsigned long long CUtexObject;
typedef unsigned long long CUsurfObject;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef cuuint64_t CUgraphConditionalHandle;
typedef cuuint32_t CUlogicalEndpointId;
typedef unsigned int CUlogIterator;

/* Stream handles with a fixed meaning; NULL is one of the two, as the caller
 * chose by the _ptsz suffix. */
#define CU_STREAM_LEGACY ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)

typedef struct CUuuid {
    char bytes[CU_UUID_SIZE];
} CUuuid;

typedef struct CUipcMemHandle {
    char reserved[CU_IPC_HANDLE_SIZE];
} CUipcMemHandle;

typedef struct CUipcEventHandle {
    char reserved[CU_IPC_HANDLE_SIZE];
} CUipcEventHandle;

typedef struct CUmemFabricHandle {
    unsigned char data[64];
} CUmemFabricHandle;

/* What cuDeviceGetProperties fills; every other figure is an attribute. */
typedef struct CUdevprop {
    int maxThreadsPerBlock;
    int maxThreadsDim[3];
    int maxGridSize[3];
    int sharedMemPerBlock;
    int totalConstantMemory;
    int SIMDWidth;
    int memPitch;
    int regsPerBlock;
    int clockRate; /* kHz */
    int textureAlign;
} CUdevprop;

_Static_assert(sizeof(void *) == 8, "only 64-bit interfaces are described");
_Static_assert(sizeof(CUresult) == 4, "CUresult");
_Static_assert(sizeof(CUuuid) == 16, "CUuuid");
_Static_assert(sizeof(CUipcMemHandle) == 64, "CUipcMemHandle");
_Static_assert(sizeof(CUdevprop) == 56, "CUdevprop");

#include "abi/cuda/checkpoint.h"
#include "abi/cuda/flags.h"
#include "abi/cuda/memory.h"
#include "abi/cuda/opaque.h"
#include "abi/cuda/work.h"

#endif
