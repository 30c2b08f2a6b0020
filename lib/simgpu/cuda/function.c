/* Attributes of functions, and how many of their blocks fit on a multiprocessor. */
#include "simgpu/cuda/driver.h"
#include "simgpu/cuda/ptx.h"

#include <time.h>

#define THREADS_MAX 1024

static CUresult usable(CUfunction function) {
    SG_READY();
    return function_is(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Attributes that were set are kept; the others are those of a small kernel. */
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    SG_REQUIRE(value && function, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(usable(function));
    SG_REQUIRE((unsigned)attribute <= 15, CUDA_ERROR_INVALID_VALUE);
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = THREADS_MAX;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 32;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = (int)(sg_driver.devices[0].model->compute_major * 10 +
                       sg_driver.devices[0].model->compute_minor);
        break;
    default:
        *value = function->attributes[attribute];
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    SG_TRY(usable(function));
    SG_REQUIRE(attribute >= CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
                   (unsigned)attribute <= 15,
               CUDA_ERROR_INVALID_VALUE);
    function->attributes[attribute] = value;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
    SG_TRY(usable(function));
    return (unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config) {
    SG_TRY(usable(function));
    return (unsigned)config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function) {
    SG_TRY(usable(function));
    SG_REQUIRE(module, CUDA_ERROR_INVALID_VALUE);
    *module = function->module;
    return function->module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetName(const char **name, CUfunction function) {
    SG_REQUIRE(name && function, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(usable(function));
    *name = function->name;
    return CUDA_SUCCESS;
}

/* The parameters of a kernel that is known by name are its own, whatever the text says. */
CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes) {
    struct ptx_variable param = {0};
    const size_t *sizes;
    uint64_t at = 0;

    SG_REQUIRE(function && offset, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(usable(function));
    size_t count = kernel_param_count(function->known, &sizes);
    if (sizes) {
        SG_REQUIRE(index < count, CUDA_ERROR_INVALID_VALUE);
        for (size_t i = 0; i <= index; i++) {
            param.bytes = sizes[i];
            at = (at + sizes[i] - 1) / sizes[i] * sizes[i] + (i < index ? sizes[i] : 0);
        }
    } else {
        SG_REQUIRE(function->entry, CUDA_ERROR_NOT_SUPPORTED); /* binary code is not read */
        SG_REQUIRE(ptx_param(function->entry, index, &param, &at), CUDA_ERROR_INVALID_VALUE);
    }
    *offset = at;
    if (bytes) {
        *bytes = param.bytes;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamCount(CUfunction function, size_t *count) {
    struct ptx_variable param;
    const size_t *sizes;
    uint64_t at;

    SG_REQUIRE(function && count, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(usable(function));
    size_t known = kernel_param_count(function->known, &sizes);
    if (sizes) {
        *count = known;
        return CUDA_SUCCESS;
    }
    SG_REQUIRE(function->entry, CUDA_ERROR_NOT_SUPPORTED);
    for (*count = 0; ptx_param(function->entry, *count, &param, &at);) {
        ++*count;
    }
    return CUDA_SUCCESS;
}

CUresult function_load(CUfunction function, CUcontext ctx) {
    uint64_t ns = sg_driver.machine->load_ns;
    const struct timespec pause = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    if (__atomic_exchange_n(&function->loaded, true, __ATOMIC_RELAXED)) {
        return CUDA_SUCCESS;
    }
    CUresult result = code_take(ctx, 1);
    if (result != CUDA_SUCCESS) {
        __atomic_store_n(&function->loaded, false, __ATOMIC_RELAXED);
        return result;
    }
    if (ns && !sg_driver.instance.state->is_virtual) {
        nanosleep(&pause, NULL);
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) {
    SG_REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_TRY(usable(function));
    return function_load(function, function->module ? function->ctx : ctx);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function) {
    SG_REQUIRE(state && function, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(usable(function));
    *state = __atomic_load_n(&function->loaded, __ATOMIC_RELAXED)
                 ? CU_FUNCTION_LOADING_STATE_LOADED
                 : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}

static CUresult blocks_per_multiprocessor(int *blocks, CUfunction function, int threads,
                                          size_t shared) {
    int limit, most, shared_most;

    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_TRY(usable(function));
    SG_REQUIRE(blocks && threads > 0 && threads <= THREADS_MAX, CUDA_ERROR_INVALID_VALUE);
    CUdevice device = ctx->device->ordinal;
    SG_TRY(cuDeviceGetAttribute(&limit, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, device));
    SG_TRY(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device));
    SG_TRY(cuDeviceGetAttribute(&shared_most,
                                CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device));
    /* Warps are whole. */
    int by_threads = most / ((threads + 31) / 32 * 32);
    size_t by_shared = shared ? (size_t)shared_most / shared : (size_t)limit;
    *blocks = by_threads < limit ? by_threads : limit;
    if (by_shared < (size_t)*blocks) {
        *blocks = (int)by_shared;
    }
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                     size_t shared) {
    return blocks_per_multiprocessor(blocks, function, threads, shared);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                              int threads, size_t shared,
                                                              unsigned int flags) {
    return flags > 1 ? CUDA_ERROR_INVALID_VALUE
                     : blocks_per_multiprocessor(blocks, function, threads, shared);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction function,
                                                   CUoccupancyB2DSize shared_of, size_t shared,
                                                   int limit, unsigned int flags) {
    int best = 0;

    SG_READY();
    SG_REQUIRE(grid && block && flags <= 1 && limit >= 0, CUDA_ERROR_INVALID_VALUE);
    SG_ENTER(ctx, SG_FAULT_OTHER)
    for (int threads = limit && limit < THREADS_MAX ? limit / 32 * 32 : THREADS_MAX; threads >= 32;
         threads -= 32) {
        int blocks;
        SG_TRY(blocks_per_multiprocessor(&blocks, function, threads,
                                         shared_of ? shared_of(threads) : shared));
        if (blocks * threads > best) {
            best = blocks * threads;
            *block = threads;
            *grid = blocks * (int)ctx->device->model->multiprocessors;
        }
    }
    return best ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t shared, int limit) {
    SG_READY();
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, shared_of, shared,
                                                     limit, 0);
}
