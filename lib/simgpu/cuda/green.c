/* Green contexts: they use the memory, modules and events of their GPU's primary context and have
 * streams of their own. To have only some of the multiprocessors would change time alone, which is
 * simulated for the whole GPU. */
#include "simgpu/cuda/driver.h"

#include <string.h>

#define RESOURCE_SM 1u    /* CU_DEV_RESOURCE_TYPE_SM */
#define DEFAULT_STREAM 1u /* CU_GREEN_CTX_DEFAULT_STREAM */

/* The documented parts of a description of resources; the rest is the driver's own. */
struct resource {
    unsigned type;
    unsigned char own[92];
    unsigned multiprocessors;
    unsigned char more[44];
};
_Static_assert(sizeof(struct resource) == 144, "a program makes room for so many bytes");

struct CUgreenCtx_st {
    struct handle handle;
    CUcontext view; /* what programs make current */
};

/* A descriptor says only that it was made: nothing is kept of the resources. */
static char described;

CUresult cuDeviceGetDevResource(CUdevice ordinal, CUdevResource *resource, CUdevResourceType type) {
    SG_READY();
    const struct device *device = sg_device(ordinal);
    struct resource all = {.type = RESOURCE_SM};

    SG_REQUIRE(resource, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(device, CUDA_ERROR_INVALID_DEVICE);
    SG_REQUIRE((unsigned)type == RESOURCE_SM, CUDA_ERROR_INVALID_RESOURCE_TYPE);
    all.multiprocessors = device->model->multiprocessors;
    memcpy(resource, &all, sizeof all);
    return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *descriptor, CUdevResource *resources,
                                   unsigned int count) {
    SG_REQUIRE(descriptor && resources && count, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    *descriptor = (CUdevResourceDesc)(void *)&described;
    return CUDA_SUCCESS;
}

static CUcontext view_of(CUcontext primary, CUgreenCtx green) {
    CUcontext view = handle_new(HANDLE_CONTEXT, sizeof *view);

    if (!view) {
        return NULL;
    }
    view->device = primary->device;
    view->api_version = primary->api_version;
    view->id = sg_new_id();
    view->is_primary = true; /* is not destroyed by itself */
    view->of = primary;
    view->green = green;
    link_init(&view->streams);
    link_init(&view->events);
    view->legacy = stream_new(primary, view, CU_STREAM_NON_BLOCKING, 0);
    view->active = view->legacy != NULL;
    return view;
}

CUresult cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc descriptor, CUdevice ordinal,
                          unsigned int flags) {
    CUcontext primary;

    SG_READY();
    SG_REQUIRE(out && (const void *)descriptor == &described && !(flags & ~DEFAULT_STREAM),
               CUDA_ERROR_INVALID_VALUE);
    SG_TRY(cuDevicePrimaryCtxRetain(&primary, ordinal));
    CUgreenCtx green = handle_new(HANDLE_GREEN, sizeof *green);
    if (green) {
        green->view = view_of(primary, green);
    }
    if (!green || !green->view || !green->view->active) {
        cuDevicePrimaryCtxRelease_v2(ordinal);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = green;
    return CUDA_SUCCESS;
}

/* The streams of it stay handles, which only their destruction takes. */
CUresult cuGreenCtxDestroy(CUgreenCtx green) {
    SG_READY();
    SG_REQUIRE(handle_given(green, HANDLE_GREEN), CUDA_ERROR_INVALID_CONTEXT);
    CUcontext view = green->view;
    CUdevice ordinal = view->device->ordinal;
    if (view->of->active) {
        streams_detach(view);
    }
    view->active = false;
    current_leave(view);
    handle_end(view, HANDLE_CONTEXT);
    handle_end(green, HANDLE_GREEN);
    return cuDevicePrimaryCtxRelease_v2(ordinal);
}

CUresult cuCtxFromGreenCtx(CUcontext *ctx, CUgreenCtx green) {
    SG_REQUIRE(ctx, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    SG_REQUIRE(handle_given(green, HANDLE_GREEN), CUDA_ERROR_INVALID_CONTEXT);
    *ctx = green->view;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned int flags,
                                int priority) {
    SG_REQUIRE(stream, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    SG_REQUIRE(handle_given(green, HANDLE_GREEN), CUDA_ERROR_INVALID_CONTEXT);
    SG_REQUIRE(flags == CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_VALUE); /* as documented */
    CUstream made = stream_new(green->view->of, green->view, flags, priority);
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *stream = made;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx *green) {
    SG_GATE();
    SG_REQUIRE(green, CUDA_ERROR_INVALID_VALUE);
    CUstream stream;
    SG_TRY(sg_stream(handle, false, __func__, &stream));
    *green = stream->view ? stream->view->green : NULL;
    return CUDA_SUCCESS;
}
