/* Every name that the driver exports and nothing here defines answers that it is not supported. The
 * strong definitions of the other files take precedence. Prototypes are left out on purpose: the names
 * are alike, and take no more than a look at their first argument. Each is a function of its own, as
 * programs compare what cuGetProcAddress finds. */
#include "abi/cuda/types.h"

#include <stddef.h>
#include <string.h>

CUresult sg_ready(void);

/* The driver looks at the first argument of these before it looks whether it is initialised. */
static const struct {
    const char *name;
    CUresult null; /* what it answers to none */
} checked[] = {
    {"cuArrayGetPlane", CUDA_ERROR_INVALID_HANDLE},
    {"cuArrayGetSparseProperties", CUDA_ERROR_INVALID_VALUE},
    {"cuCoredumpGetAttribute", CUDA_ERROR_INVALID_VALUE},
    {"cuCoredumpGetAttributeGlobal", CUDA_ERROR_INVALID_VALUE},
    {"cuCoredumpSetAttribute", CUDA_ERROR_INVALID_VALUE},
    {"cuCoredumpSetAttributeGlobal", CUDA_ERROR_INVALID_VALUE},
    {"cuCtxGetDevResource", CUDA_ERROR_INVALID_VALUE},
    {"cuEGLStreamConsumerAcquireFrame", CUDA_ERROR_INVALID_HANDLE},
    {"cuEGLStreamConsumerConnect", CUDA_ERROR_INVALID_HANDLE},
    {"cuEGLStreamConsumerConnectWithFlags", CUDA_ERROR_INVALID_HANDLE},
    {"cuEGLStreamConsumerDisconnect", CUDA_ERROR_INVALID_HANDLE},
    {"cuEGLStreamConsumerReleaseFrame", CUDA_ERROR_INVALID_HANDLE},
    {"cuEGLStreamProducerConnect", CUDA_ERROR_INVALID_HANDLE},
    {"cuEGLStreamProducerDisconnect", CUDA_ERROR_INVALID_HANDLE},
    {"cuEGLStreamProducerPresentFrame", CUDA_ERROR_INVALID_HANDLE},
    {"cuEGLStreamProducerReturnFrame", CUDA_ERROR_INVALID_HANDLE},
    {"cuGraphAddExternalSemaphoresSignalNode", CUDA_ERROR_INVALID_VALUE},
    {"cuGraphAddExternalSemaphoresWaitNode", CUDA_ERROR_INVALID_VALUE},
    {"cuGraphConditionalHandleCreate", CUDA_ERROR_INVALID_VALUE},
    {"cuGraphDebugDotPrint", CUDA_ERROR_INVALID_VALUE},
    {"cuGraphExecChildGraphNodeSetParams", CUDA_ERROR_INVALID_VALUE},
    {"cuGraphExecExternalSemaphoresSignalNodeSetParams", CUDA_ERROR_INVALID_VALUE},
    {"cuGraphExecExternalSemaphoresWaitNodeSetParams", CUDA_ERROR_INVALID_VALUE},
    {"cuGraphExternalSemaphoresSignalNodeGetParams", CUDA_ERROR_INVALID_VALUE},
    {"cuGraphExternalSemaphoresSignalNodeSetParams", CUDA_ERROR_INVALID_VALUE},
    {"cuGraphExternalSemaphoresWaitNodeGetParams", CUDA_ERROR_INVALID_VALUE},
    {"cuGraphExternalSemaphoresWaitNodeSetParams", CUDA_ERROR_INVALID_VALUE},
    {"cuGraphReleaseUserObject", CUDA_ERROR_INVALID_VALUE},
    {"cuGraphRetainUserObject", CUDA_ERROR_INVALID_VALUE},
    {"cuGreenCtxGetDevResource", CUDA_ERROR_INVALID_VALUE},
    {"cuGreenCtxRecordEvent", CUDA_ERROR_INVALID_CONTEXT},
    {"cuGreenCtxWaitEvent", CUDA_ERROR_INVALID_CONTEXT},
    {"cuLibraryGetManaged", CUDA_ERROR_INVALID_VALUE},
    {"cuLibraryGetModule", CUDA_ERROR_INVALID_VALUE},
    {"cuMemMapArrayAsync", CUDA_ERROR_INVALID_VALUE},
    {"cuMemMapArrayAsync_ptsz", CUDA_ERROR_INVALID_VALUE},
    {"cuMipmappedArrayGetSparseProperties", CUDA_ERROR_INVALID_VALUE},
    {"cuOccupancyMaxActiveClusters", CUDA_ERROR_INVALID_VALUE},
    {"cuOccupancyMaxPotentialClusterSize", CUDA_ERROR_INVALID_VALUE},
    {"cuUserObjectCreate", CUDA_ERROR_INVALID_VALUE},
    {"cuUserObjectRelease", CUDA_ERROR_INVALID_VALUE},
    {"cuUserObjectRetain", CUDA_ERROR_INVALID_VALUE},
};

static CUresult unsupported(const char *name, const void *first) {
    CUresult ready = sg_ready();

    if (ready == CUDA_SUCCESS) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    for (size_t i = 0; !first && i < sizeof checked / sizeof *checked; i++) {
        if (strcmp(checked[i].name, name) == 0) {
            return checked[i].null;
        }
    }
    return ready;
}

#define CUDA_FN(name, base, since, variant, kind, hooked)                                          \
    __attribute__((weak, visibility("default"))) CUresult name(const void *first);                 \
    CUresult name(const void *first) {                                                             \
        return unsupported(#name, first);                                                          \
    }
#include "abi/generated/cuda_names.inc"
