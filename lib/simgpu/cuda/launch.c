/* Launches of kernels. */
#include "simgpu/cuda/driver.h"

#include <string.h>

#define BLOCK_MAX 1024u
#define SHARED_MAX 232448u /* most dynamic shared memory of one block of any described GPU */

static CUresult check(const struct launch *l) {
    SG_REQUIRE(function_is(l->function), CUDA_ERROR_INVALID_HANDLE);
    for (int i = 0; i < 3; i++) {
        SG_REQUIRE(l->grid[i] && l->block[i], CUDA_ERROR_INVALID_VALUE);
    }
    SG_REQUIRE(l->grid[0] <= INT32_MAX && l->grid[1] <= 65535 && l->grid[2] <= 65535,
               CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(l->block[0] <= BLOCK_MAX && l->block[1] <= BLOCK_MAX && l->block[2] <= 64 &&
                   (uint64_t)l->block[0] * l->block[1] * l->block[2] <= BLOCK_MAX &&
                   l->shared <= SHARED_MAX,
               CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

/* Finds a packed parameter buffer in the list that ends with CU_LAUNCH_PARAM_END. */
static CUresult read_extra(struct launch *l, void **extra) {
    for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            l->buffer = extra[1];
        } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            l->buffer_bytes = *(size_t *)extra[1];
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

CUresult launch_check(struct launch *l, void **extra) {
    SG_REQUIRE(!(l->params && extra), CUDA_ERROR_INVALID_VALUE);
    SG_TRY(check(l));
    return extra ? read_extra(l, extra) : CUDA_SUCCESS;
}

/* All blocks of a cooperative launch must be on the GPU at once. */
static CUresult fits(CUstream stream, const struct launch *l) {
    int blocks;

    SG_TRY(check(l));
    SG_TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, l->function, (int)(l->block[0] * l->block[1] * l->block[2]), l->shared));
    uint64_t room = (uint64_t)blocks * stream->ctx->device->model->multiprocessors;
    SG_REQUIRE((uint64_t)l->grid[0] * l->grid[1] * l->grid[2] <= room,
               CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    return CUDA_SUCCESS;
}

/* The driver raises the stack for a launch that needs more, and leaves it so. */
CUresult launch_prepare(CUfunction function, CUcontext ctx) {
    size_t local = (size_t)function->attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES];

    if (function->library && __atomic_load_n(&function->ctx, __ATOMIC_RELAXED) != ctx) {
        SG_TRY(library_enter(function->library, ctx));
    }
    if (!__atomic_load_n(&function->loaded, __ATOMIC_RELAXED)) {
        SG_TRY(function_load(function, ctx));
    }
    return stack_raise(ctx, local);
}

/* Fills only the members that a launch uses, because copying an operation is a launch's main
   cost. */
static CUresult launch(CUstream stream, struct stream_op *op, void **extra) {
    CUfunction function = op->launch.function;

    op->kind = OP_KERNEL;
    SG_TRY(launch_check(&op->launch, extra));
    if (sg_driver.machine->launch_ns) {
        sg_burn(sg_driver.machine->launch_ns);
    }
    SG_TRY(launch_prepare(function, stream->ctx));
    /* A kernel of a library belongs to the context that it is launched in. */
    if (function->library) {
        __atomic_store_n(&function->ctx, stream->ctx, __ATOMIC_RELAXED);
    }
    SG_REQUIRE(function->ctx == stream->ctx, CUDA_ERROR_INVALID_HANDLE);
    return sg_enqueue(stream, op);
}

#define LAUNCH_KERNEL(name, ptds)                                                                  \
    CUresult name(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,          \
                  unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,          \
                  CUstream handle, void **params, void **extra) {                                  \
        struct stream_op op;                                                                       \
        SG_STREAM(stream, handle, ptds);                                                           \
        op.launch = (struct launch){.function = function,                                          \
                                    .grid = {gx, gy, gz},                                          \
                                    .block = {bx, by, bz},                                         \
                                    .shared = shared,                                              \
                                    .params = params};                                             \
        return launch(stream, &op, extra);                                                         \
    }

LAUNCH_KERNEL(cuLaunchKernel, false)
LAUNCH_KERNEL(cuLaunchKernel_ptsz, true)

static CUresult launch_config(const CUlaunchConfig *config, CUfunction function, void **params,
                              void **extra, bool ptds) {
    SG_REQUIRE(config && (config->numAttrs == 0 || config->attrs), CUDA_ERROR_INVALID_VALUE);
    SG_STREAM(stream, config->hStream, ptds);
    struct stream_op op;
    op.launch = (struct launch){
        .function = function,
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .shared = config->sharedMemBytes,
        .params = params,
    };
    for (unsigned i = 0; i < config->numAttrs; i++) {
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
            op.launch.cooperative = config->attrs[i].value.cooperative != 0;
        }
    }
    if (op.launch.cooperative) {
        SG_TRY(fits(stream, &op.launch));
    }
    return launch(stream, &op, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                          void **extra) {
    return launch_config(config, function, params, extra, false);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params,
                               void **extra) {
    return launch_config(config, function, params, extra, true);
}

#define LAUNCH_COOPERATIVE(name, ptds)                                                             \
    CUresult name(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,          \
                  unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,          \
                  CUstream handle, void **params) {                                                \
        SG_STREAM(stream, handle, ptds);                                                           \
        struct stream_op op;                                                                       \
        op.launch = (struct launch){.function = function,                                          \
                                    .grid = {gx, gy, gz},                                          \
                                    .block = {bx, by, bz},                                         \
                                    .shared = shared,                                              \
                                    .params = params,                                              \
                                    .cooperative = true};                                          \
        SG_TRY(fits(stream, &op.launch));                                                          \
        return launch(stream, &op, NULL);                                                          \
    }

LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, false)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)

/* One launch per device; each waits for what its own stream has before. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count,
                                              unsigned int flags) {
    SG_READY();
    SG_REQUIRE(list && count && flags <= 3, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++) {
        const CUDA_LAUNCH_PARAMS *p = &list[i];
        SG_REQUIRE(p->hStream && p->hStream != CU_STREAM_LEGACY &&
                       p->hStream != CU_STREAM_PER_THREAD,
                   CUDA_ERROR_INVALID_VALUE);
        SG_TRY(cuLaunchCooperativeKernel(p->function, p->gridDimX, p->gridDimY, p->gridDimZ,
                                         p->blockDimX, p->blockDimY, p->blockDimZ,
                                         p->sharedMemBytes, p->hStream, p->kernelParams));
    }
    return CUDA_SUCCESS;
}

/* The interface of before CUDA 4: shape and parameters are the function's state. */

static CUresult usable(CUfunction function) {
    SG_READY();
    SG_REQUIRE(function && handle_given(function, HANDLE_FUNCTION), CUDA_ERROR_INVALID_HANDLE);
    return CUDA_SUCCESS;
}

CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
    SG_TRY(usable(function));
    SG_REQUIRE(x > 0 && y > 0 && z > 0, CUDA_ERROR_INVALID_VALUE);
    function->block[0] = (unsigned)x;
    function->block[1] = (unsigned)y;
    function->block[2] = (unsigned)z;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction function, unsigned int bytes) {
    SG_TRY(usable(function));
    function->shared = bytes;
    return CUDA_SUCCESS;
}

CUresult cuParamSetSize(CUfunction function, unsigned int bytes) {
    SG_TRY(usable(function));
    SG_REQUIRE(bytes <= sizeof function->params, CUDA_ERROR_INVALID_VALUE);
    function->params_size = bytes;
    return CUDA_SUCCESS;
}

CUresult cuParamSetv(CUfunction function, int offset, void *value, unsigned int bytes) {
    SG_TRY(usable(function));
    SG_REQUIRE(offset >= 0 && value && bytes <= sizeof function->params &&
                   (size_t)offset <= sizeof function->params - bytes,
               CUDA_ERROR_INVALID_VALUE);
    memcpy(function->params + offset, value, bytes);
    return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction function, int offset, unsigned int value) {
    return cuParamSetv(function, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction function, int offset, float value) {
    return cuParamSetv(function, offset, &value, sizeof value);
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream handle) {
    SG_TRY(usable(function));
    SG_REQUIRE(width > 0 && height > 0, CUDA_ERROR_INVALID_VALUE);
    SG_STREAM(stream, handle, false);
    struct stream_op op;
    op.launch = (struct launch){.function = function,
                                .grid = {(unsigned)width, (unsigned)height, 1},
                                .shared = function->shared,
                                .buffer = function->params,
                                .buffer_bytes = function->params_size};
    memcpy(op.launch.block, function->block, sizeof op.launch.block);
    return launch(stream, &op, NULL);
}

CUresult cuLaunchGrid(CUfunction function, int width, int height) {
    return cuLaunchGridAsync(function, width, height, NULL);
}

CUresult cuLaunch(CUfunction function) {
    return cuLaunchGridAsync(function, 1, 1, NULL);
}
