/* The contexts that a thread has made current, one above the other, and what a call begins with:
 * the check of the topmost. */
#include "simgpu/cuda/process.h"
#include "simgpu/cuda/touch.h"

#define STACK_DEPTH 64

/* initial-exec: a launch looks here, and must not pay for a call to find the thread's storage. */
static _Thread_local struct {
    CUcontext stack[STACK_DEPTH];
    unsigned depth;
} thread __attribute__((tls_model("initial-exec")));

CUcontext sg_current(void) {
    return thread.depth ? thread.stack[thread.depth - 1] : NULL;
}

bool sg_context_usable(CUcontext ctx) {
    return handle_is(ctx, HANDLE_CONTEXT) && ctx->active && (!ctx->of || ctx->of->active);
}

bool sg_context_given(CUcontext ctx) {
    return handle_given(ctx, HANDLE_CONTEXT) && (ctx->active || handle_dead(ctx, HANDLE_CONTEXT));
}

CUresult sg_context_result(CUcontext ctx) {
    CUresult fault = __atomic_load_n(&ctx->fault, __ATOMIC_RELAXED);

    if (!fault && managed_any()) {
        fault = managed_result(ctx);
    }
    return fault ? fault : mps_result(ctx->device->gpu);
}

CUresult sg_enter(CUcontext *ctx, enum sg_fault_class class, const char *name) {
    CUresult result = sg_ready();

    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ctx = sg_current();
    if (!*ctx) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!sg_context_usable(*ctx)) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    *ctx = (*ctx)->of ? (*ctx)->of : *ctx;
    result = sg_context_result(*ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return (CUresult)sg_fault_answer(&sg_driver.instance, (*ctx)->device->gpu, class, name);
}

CUresult current_push(CUcontext ctx) {
    if (thread.depth == STACK_DEPTH) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    thread.stack[thread.depth++] = ctx;
    return CUDA_SUCCESS;
}

void current_leave(CUcontext ctx) {
    if (sg_current() == ctx) {
        thread.depth--;
    }
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
    SG_READY();
    SG_REQUIRE(sg_context_given(ctx), CUDA_ERROR_INVALID_CONTEXT);
    return current_push(ctx);
}

CUresult cuCtxPushCurrent(CUcontext ctx) {
    return cuCtxPushCurrent_v2(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx) {
    SG_READY();
    SG_REQUIRE(thread.depth, CUDA_ERROR_INVALID_CONTEXT);
    if (ctx) {
        *ctx = sg_current();
    }
    thread.depth--;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *ctx) {
    return cuCtxPopCurrent_v2(ctx);
}

/* Replaces the top of the stack; NULL removes it. */
CUresult cuCtxSetCurrent(CUcontext ctx) {
    SG_READY();
    SG_REQUIRE(!ctx || sg_context_given(ctx), CUDA_ERROR_INVALID_CONTEXT);
    if (thread.depth) {
        thread.depth--;
    }
    return ctx ? current_push(ctx) : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx) {
    SG_READY();
    SG_REQUIRE(ctx, CUDA_ERROR_INVALID_VALUE);
    *ctx = sg_current();
    return CUDA_SUCCESS;
}
