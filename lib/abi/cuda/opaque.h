/* Types of the CUDA driver API that Divvy hands on without looking inside:
 * structures stay incomplete, enumerations are the 4-byte unsigned integer that
 * they are at the binary interface. Included by types.h. */
#ifndef DIVVY_ABI_CUDA_OPAQUE_H
#define DIVVY_ABI_CUDA_OPAQUE_H

typedef unsigned int CUaddress_mode;
typedef unsigned int CUatomicOperation;
typedef unsigned int CUcoredumpSettings;
typedef unsigned int CUdevResourceType;
typedef unsigned int CUfilter_mode;
typedef unsigned int CUflushGPUDirectRDMAWritesScope;
typedef unsigned int CUflushGPUDirectRDMAWritesTarget;
typedef unsigned int CUGLDeviceList;
typedef unsigned int CUlogicalEndpointIpcHandleType;
typedef unsigned int CUtensorMapAllocClass;
typedef unsigned int CUtensorMapDataType;
typedef unsigned int CUtensorMapFloatOOBfill;
typedef unsigned int CUtensorMapIm2ColWideMode;
typedef unsigned int CUtensorMapInterleave;
typedef unsigned int CUtensorMapL2promotion;
typedef unsigned int CUtensorMapSwizzle;

typedef struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC CUDA_EXTERNAL_MEMORY_BUFFER_DESC;
typedef struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
typedef struct CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC;
typedef struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;
typedef struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS;
typedef struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;
typedef struct CUDA_EXT_SEM_SIGNAL_NODE_PARAMS CUDA_EXT_SEM_SIGNAL_NODE_PARAMS;
typedef struct CUDA_EXT_SEM_WAIT_NODE_PARAMS CUDA_EXT_SEM_WAIT_NODE_PARAMS;
typedef struct CUDA_FABRIC_COPY_BATCH_OP CUDA_FABRIC_COPY_BATCH_OP;
typedef struct CUDA_RESOURCE_DESC CUDA_RESOURCE_DESC;
typedef struct CUDA_RESOURCE_VIEW_DESC CUDA_RESOURCE_VIEW_DESC;
typedef struct CUDA_TEXTURE_DESC CUDA_TEXTURE_DESC;
typedef struct CU_DEV_SM_RESOURCE_GROUP_PARAMS CU_DEV_SM_RESOURCE_GROUP_PARAMS;
typedef struct CUarrayMapInfo CUarrayMapInfo;
typedef struct CUasyncNotificationInfo CUasyncNotificationInfo;
typedef struct CUcliqueInfo CUcliqueInfo;
typedef struct CUdevResource CUdevResource;
typedef struct CUlogicalEndpointProp CUlogicalEndpointProp;
typedef struct CUmemDecompressParams CUmemDecompressParams;
typedef struct CUstreamCigCaptureParams CUstreamCigCaptureParams;
typedef struct CUtensorMap CUtensorMap;

typedef void (*CUasyncCallback)(CUasyncNotificationInfo *, void *, CUasyncCallbackHandle);
typedef void (*CUcoredumpStatusCallback)(void *, int, CUdevice);
typedef void (*CUlogsCallback)(void *, unsigned int, char *, size_t);
/* Only its address passes through Divvy. */
typedef void (*CUgraphRecaptureCallback)(void);

/* Passed by value, so its size matters. */
typedef struct CUeglFrame {
    void *plane[3];
    unsigned int extent[6];
    unsigned int kind[3];
} CUeglFrame;
_Static_assert(sizeof(CUeglFrame) == 64, "CUeglFrame");

/* Types of OpenGL, EGL and VDPAU that appear in the interoperation calls. */
typedef unsigned int GLenum;
typedef unsigned int GLuint;
typedef int EGLint;
typedef void *EGLImageKHR;
typedef void *EGLStreamKHR;
typedef void *EGLSyncKHR;
typedef uint32_t VdpDevice;
typedef uint32_t VdpVideoSurface;
typedef uint32_t VdpOutputSurface;
typedef int VdpGetProcAddress(VdpDevice, uint32_t, void **);

#endif
