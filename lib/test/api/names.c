/* Before and at the beginning; names of functions and of results. */
#define _GNU_SOURCE
#include "test/api/api.h"

#include <string.h>

typedef CUresult any(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                     uint64_t, uint64_t, uint64_t);

/* Which of two faults a call tells of, nobody documents: these have no other than that they come too early. */
static const char *const early[] = {
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetUuid_v2",
    "cuDeviceGetPCIBusId",
    "cuDeviceGetByPCIBusId",
    "cuDeviceCanAccessPeer",
    "cuDeviceGetDefaultMemPool",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxCreate_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxGetDevice",
    "cuCtxSynchronize",
    "cuCtxGetLimit",
    "cuCtxSetLimit",
    "cuCtxGetApiVersion",
    "cuCtxGetStreamPriorityRange",
    "cuMemAlloc_v2",
    "cuMemAllocPitch_v2",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemAllocHost_v2",
    "cuMemFreeHost",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemHostGetDevicePointer_v2",
    "cuMemcpy",
    "cuMemcpyHtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyDtoD_v2",
    "cuMemcpyAsync",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyPeer",
    "cuMemcpy2D_v2",
    "cuMemcpy2DUnaligned_v2",
    "cuMemcpy3D_v2",
    "cuMemsetD8_v2",
    "cuMemsetD16_v2",
    "cuMemsetD32_v2",
    "cuMemsetD2D8_v2",
    "cuMemsetD2D16_v2",
    "cuMemsetD2D32_v2",
    "cuMemsetD8Async",
    "cuMemsetD32Async",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolTrimTo",
    "cuMemPoolGetAttribute",
    "cuMemPoolSetAttribute",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemGetAllocationGranularity",
    "cuPointerGetAttribute",
    "cuPointerGetAttributes",
    "cuArrayCreate_v2",
    "cuArray3DCreate_v2",
    "cuArrayDestroy",
    "cuMipmappedArrayCreate",
    "cuMipmappedArrayDestroy",
    "cuStreamSynchronize",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuEventCreate",
    "cuEventRecord",
    "cuLaunchHostFunc",
    "cuLaunchKernel",
    "cuLaunchCooperativeKernel",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuModuleGetGlobal_v2",
    "cuFuncSetAttribute",
    "cuLinkCreate_v2",
    "cuGraphCreate",
    "cuGraphDestroy",
    "cuGraphAddMemsetNode",
    "cuGraphAddKernelNode",
    "cuGraphGetNodes",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuTexObjectCreate",
    "cuSurfObjectCreate",
};

void api_case_before(void) {
    for (size_t i = 0; i < COUNT(early); i++) {
        any *one = (any *)api_find(early[i], false);
        NAMED(early[i], one(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
    }
}

void api_case_begin(void) {
    int version = 0, count = -1;
    CUcontext ctx = (CUcontext)7;

    OK(cuDriverGetVersion, &version);
    TRUE(version >= 12040 && version < 14000);
    INVALID(cuDriverGetVersion, NULL);
    INVALID(cuInit, 1);
    ANSWERS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount, &count);
    SAME(count, -1);
    OK(cuInit, 0);
    OK(cuInit, 0);
    INVALID(cuInit, 1);
    OK(cuDeviceGetCount, &count);
    TRUE(count > 0);
    INVALID(cuDeviceGetCount, NULL);
    OK(cuCtxGetCurrent, &ctx);
    TRUE(ctx == NULL);
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize);
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuStreamSynchronize, NULL);
    int again = 0;
    OK(cuDriverGetVersion, &again);
    SAME(again, version);
}

static void same_function(const char *name, const char *symbol, int version, cuuint64_t flags) {
    void *found = NULL;
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)9;

    NAMED(name, CU(cuGetProcAddress_v2)(name, &found, version, flags, &status), CUDA_SUCCESS);
    NAMED(name, status, CU_GET_PROC_ADDRESS_SUCCESS);
    /* One function may have two addresses, but is found at the same one again. */
    if (api_lacks("one-address")) {
        void *again = NULL;
        NAMED(symbol, CU(cuGetProcAddress_v2)(name, &again, version, flags, NULL), CUDA_SUCCESS);
        NAMED(symbol, found && again == found, 1);
    } else {
        NAMED(symbol, (uintptr_t)found == api_find(symbol, false), 1);
    }
}

static void check_not_found(void) {
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)9;
    void *found = &status;

    OK(cuGetProcAddress_v2, "cuNothing", &found, 12000, 0, &status);
    TRUE(found == NULL);
    SAME(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    OK(cuGetProcAddress_v2, "cuLibraryLoadData", &found, 11000, 0, &status);
    TRUE(found == NULL);
    SAME(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    ANSWERS(CUDA_ERROR_NOT_FOUND, cuGetProcAddress, "cuNothing", &found, 12000, 0);
    INVALID(cuGetProcAddress_v2, NULL, &found, 12000, 0, &status);
    INVALID(cuGetProcAddress_v2, "cuInit", NULL, 12000, 0, &status);
    INVALID(cuGetProcAddress_v2, "cuInit", &found, 12000, 8, &status);
}

void api_case_lookup(void) {
    static const struct {
        const char *name, *symbol;
        int version;
        cuuint64_t flags;
    } wanted[] = {
        {"cuInit", "cuInit", 12000, 0},
        {"cuMemAlloc", "cuMemAlloc_v2", 12000, 0},
        {"cuMemFree", "cuMemFree_v2", 12000, 0},
        {"cuCtxCreate", "cuCtxCreate_v2", 4000, 0},
        {"cuCtxCreate", "cuCtxCreate_v3", 11040, 0},
        {"cuCtxDestroy", "cuCtxDestroy_v2", 12000, 0},
        {"cuMemcpyHtoD", "cuMemcpyHtoD_v2", 12000, 0},
        {"cuMemcpyHtoD", "cuMemcpyHtoD_v2", 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM},
        {"cuMemcpyHtoD", "cuMemcpyHtoD_v2_ptds", 12000,
         CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM},
        {"cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2_ptsz", 12000,
         CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM},
        {"cuLaunchKernel", "cuLaunchKernel", 12000, 0},
        {"cuLaunchKernel", "cuLaunchKernel_ptsz", 12000,
         CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM},
        {"cuLaunchKernelEx", "cuLaunchKernelEx", 12000, 0},
        {"cuMemGetInfo", "cuMemGetInfo_v2", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM},
        {"cuGetProcAddress", "cuGetProcAddress_v2", 12000, 0},
        {"cuGetProcAddress", "cuGetProcAddress", 11030, 0},
        {"cuDeviceTotalMem", "cuDeviceTotalMem_v2", 12000, 0},
        {"cuDeviceGetUuid", "cuDeviceGetUuid_v2", 12000, 0},
        {"cuStreamBeginCapture", "cuStreamBeginCapture_v2", 12000, 0},
        {"cuModuleGetGlobal", "cuModuleGetGlobal_v2", 12000, 0},
        {"cuLinkCreate", "cuLinkCreate_v2", 12000, 0},
        {"cuEventRecord", "cuEventRecord", 12000, 0},
        {"cuGraphLaunch", "cuGraphLaunch", 12000, 0},
        {"cuGraphCreate", "cuGraphCreate", 12000, 0},
        {"cuGraphExecUpdate", "cuGraphExecUpdate_v2", 12000, 0},
        {"cuMemAllocAsync", "cuMemAllocAsync", 12000, 0},
        {"cuMemcpy2D", "cuMemcpy2D_v2", 12000, 0},
        {"cuMemcpy3D", "cuMemcpy3D_v2", 12000, 0},
        {"cuArrayCreate", "cuArrayCreate_v2", 12000, 0},
        {"cuStreamDestroy", "cuStreamDestroy_v2", 12000, 0},
    };
    OK(cuInit, 0);
    for (size_t i = 0; i < COUNT(wanted); i++) {
        same_function(wanted[i].name, wanted[i].symbol, wanted[i].version, wanted[i].flags);
    }
    check_not_found();
}

void api_case_errors(void) {
    static const struct {
        const char *name;
        CUresult value;
    } results[] = {
#define CUDA_RESULT(name, value) {#name, (CUresult)(value)},
#include "abi/cuda/results.inc"
#undef CUDA_RESULT
    };
    const char *text, *told;

    OK(cuInit, 0);
    for (size_t i = 0; i < COUNT(results); i++) {
        if (results[i].value == CUDA_ERROR_TENSOR_MEMORY_LEAK || results[i].value == 227 ||
            results[i].value == 226 || results[i].value > 908) {
            continue; /* later than the oldest driver that the suite is for */
        }
        text = told = NULL;
        if (CU(cuGetErrorName)(results[i].value, &text) == CUDA_ERROR_INVALID_VALUE) {
            /* A driver may be older than the result, and then knows neither. */
            NAMED(results[i].name, CU(cuGetErrorString)(results[i].value, &told),
                  CUDA_ERROR_INVALID_VALUE);
            continue;
        }
        NAMED(results[i].name, text && strcmp(text, results[i].name) == 0, 1);
        NAMED(results[i].name, CU(cuGetErrorString)(results[i].value, &told), CUDA_SUCCESS);
        NAMED(results[i].name, told && told[0] && strcmp(told, text) != 0, 1);
    }
    OK(cuGetErrorString, CUDA_ERROR_OUT_OF_MEMORY, &text);
    TRUE(strcmp(text, "out of memory") == 0);
    OK(cuGetErrorString, CUDA_SUCCESS, &text);
    TRUE(strcmp(text, "no error") == 0);
    INVALID(cuGetErrorName, (CUresult)4242, &text);
    TRUE(text == NULL);
    text = "";
    INVALID(cuGetErrorString, (CUresult)4242, &text);
    TRUE(text == NULL);
    INVALID(cuGetErrorName, CUDA_SUCCESS, NULL);
    INVALID(cuGetErrorString, CUDA_SUCCESS, NULL);
}
