/* Texture and surface objects. Simulated kernels use none, so an object is a number that
 * is known until it is destroyed. */
#include "simgpu/cuda/driver.h"

struct object {
    struct handle handle;
};

static CUresult create(unsigned long long *out, const void *resource, enum handle_kind kind) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(out && resource, CUDA_ERROR_INVALID_VALUE);
    struct object *object = handle_new(kind, sizeof *object);
    if (!object) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = (uintptr_t)object;
    return CUDA_SUCCESS;
}

static CUresult destroy(unsigned long long number, enum handle_kind kind) {
    struct object *object = (struct object *)(uintptr_t)number;

    SG_READY();
    SG_REQUIRE(handle_given(object, kind), CUDA_ERROR_INVALID_HANDLE);
    handle_end(object, kind);
    return CUDA_SUCCESS;
}

CUresult cuTexObjectCreate(CUtexObject *out, const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view) {
    (void)view;
    SG_READY();
    SG_REQUIRE(texture, CUDA_ERROR_INVALID_VALUE);
    return create(out, resource, HANDLE_TEXTURE);
}

CUresult cuTexObjectDestroy(CUtexObject object) {
    return destroy(object, HANDLE_TEXTURE);
}

CUresult cuSurfObjectCreate(CUsurfObject *out, const CUDA_RESOURCE_DESC *resource) {
    return create(out, resource, HANDLE_SURFACE);
}

CUresult cuSurfObjectDestroy(CUsurfObject object) {
    return destroy(object, HANDLE_SURFACE);
}
