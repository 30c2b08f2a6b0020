/* Attributes of functions, and how many of their blocks fit on a multiprocessor. */
#include "simgpu/cuda/driver.h"

#include <time.h>

#define THREADS_MAX 1024

static CUresult usable(CUfunction function) {
    SG_READY();
    return function_is(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Attributes that were set are kept; the others are those of a small kernel. */
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    SG_TRY(usable(function));
    SG_REQUIRE(value && (unsigned)attribute <= 15, CUDA_ERROR_INVALID_VALUE);
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
    SG_TRY(usable(function));
    SG_REQUIRE(name, CUDA_ERROR_INVALID_VALUE);
    *name = function->name;
    return CUDA_SUCCESS;
}

void function_load(CUfunction function) {
    uint64_t ns = sg_driver.machine->load_ns;
    const struct timespec pause = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    if (!__atomic_exchange_n(&function->loaded, true, __ATOMIC_RELAXED) && ns &&
        !sg_driver.instance.state->is_virtual) {
        nanosleep(&pause, NULL);
    }
}

CUresult cuFuncLoad(CUfunction function) {
    SG_TRY(usable(function));
    function_load(function);
    return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function) {
    SG_TRY(usable(function));
    SG_REQUIRE(state, CUDA_ERROR_INVALID_VALUE);
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
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, shared_of, shared,
                                                     limit, 0);
}
