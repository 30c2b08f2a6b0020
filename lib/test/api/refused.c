/* What the library says that it lacks, and handles that name nothing. */
#include "test/api/api.h"

#include <string.h>

typedef CUresult any(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                     uint64_t, uint64_t, uint64_t);

/* A library for an older driver may not have a later name at all. */
static void check_lack(const char *name) {
    if (strncmp(name, "cu", 2) == 0 && api_has(name) && strcmp(name, "cuGetExportTable") != 0) {
        any *one = (any *)api_find(name, false);
        NAMED(name, one(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
    }
}

void api_case_refused(void) {
    const void *table = NULL;
    CUuuid id = {{0}}; /* of no table */

    api_begin();
    api_each_lack(check_lack);
    SAME(CU(cuGetExportTable)(&table, &id), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuCtxSynchronize);
}

/* One of each kind, made and ended. */
static struct {
    CUstream stream;
    CUevent event;
    CUmodule module;
    CUfunction function;
    CUlibrary library;
    CUarray array;
    CUmipmappedArray mipmap;
    CUlinkState link;
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUmemoryPool pool;
    CUmemGenericAllocationHandle block;
} ended;

static void end_one_of_each(void) {
    CUDA_ARRAY3D_DESCRIPTOR what = {16, 16, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUDA_ARRAY_DESCRIPTOR flat = {16, 16, CU_AD_FORMAT_FLOAT, 1};
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

    OK(cuStreamCreate, &ended.stream, 0);
    OK(cuStreamDestroy_v2, ended.stream);
    OK(cuEventCreate, &ended.event, 0);
    OK(cuEventDestroy_v2, ended.event);
    OK(cuModuleLoadData, &ended.module, api_ptx);
    OK(cuModuleGetFunction, &ended.function, ended.module, "none");
    OK(cuModuleUnload, ended.module);
    OK(cuLibraryLoadData, &ended.library, api_ptx, NULL, NULL, 0, NULL, NULL, 0);
    OK(cuLibraryUnload, ended.library);
    OK(cuArrayCreate_v2, &ended.array, &flat);
    OK(cuArrayDestroy, ended.array);
    OK(cuMipmappedArrayCreate, &ended.mipmap, &what, 2);
    OK(cuMipmappedArrayDestroy, ended.mipmap);
    OK(cuLinkCreate_v2, 0, NULL, NULL, &ended.link);
    OK(cuLinkDestroy, ended.link);
    OK(cuGraphCreate, &ended.graph, 0);
    OK(cuGraphAddEmptyNode, &ended.node, ended.graph, NULL, 0);
    OK(cuGraphInstantiateWithFlags, &ended.exec, ended.graph, 0);
    OK(cuGraphExecDestroy, ended.exec);
    OK(cuGraphDestroy, ended.graph);
    OK(cuMemPoolCreate, &ended.pool, &props);
    OK(cuMemPoolDestroy, ended.pool);
    OK(cuMemCreate, &ended.block, 2 * MIB, &prop, 0);
    OK(cuMemRelease, ended.block);
}

#define NAMES_NOTHING(name, ...) ANSWERS(CUDA_ERROR_INVALID_HANDLE, name, __VA_ARGS__)

static void check_streams(CUdeviceptr p) {
    unsigned flags = 0;
    unsigned long long id = 0;
    int priority = 0;
    CUcontext ctx = NULL;
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)0;
    unsigned char byte = 0;

    NAMES_NOTHING(cuStreamSynchronize, ended.stream);
    NAMES_NOTHING(cuStreamQuery, ended.stream);
    NAMES_NOTHING(cuStreamDestroy_v2, ended.stream);
    NAMES_NOTHING(cuStreamGetFlags, ended.stream, &flags);
    NAMES_NOTHING(cuStreamGetPriority, ended.stream, &priority);
    NAMES_NOTHING(cuStreamGetId, ended.stream, &id);
    NAMES_NOTHING(cuStreamGetCtx, ended.stream, &ctx);
    NAMES_NOTHING(cuStreamIsCapturing, ended.stream, &status);
    NAMES_NOTHING(cuStreamBeginCapture_v2, ended.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    NAMES_NOTHING(cuStreamWaitValue32, ended.stream, p, 0, 0);
    NAMES_NOTHING(cuStreamWriteValue32, ended.stream, p, 0, 0);
    NAMES_NOTHING(cuMemsetD8Async, p, 1, 64, ended.stream);
    NAMES_NOTHING(cuMemcpyHtoDAsync_v2, p, &byte, 1, ended.stream);
    NAMES_NOTHING(cuMemcpyDtoHAsync_v2, &byte, p, 1, ended.stream);
    NAMES_NOTHING(cuMemcpyDtoDAsync_v2, p, p + 32, 1, ended.stream);
    NAMES_NOTHING(cuMemFreeAsync, p, ended.stream);
    NAMES_NOTHING(cuEventRecord, ended.event, NULL);
    NAMES_NOTHING(cuEventQuery, ended.event);
    NAMES_NOTHING(cuEventSynchronize, ended.event);
    NAMES_NOTHING(cuEventDestroy_v2, ended.event);
    NAMES_NOTHING(cuStreamWaitEvent, NULL, ended.event, 0);
}

static void check_code(void) {
    CUfunction f = NULL;
    CUkernel k = NULL;
    CUdeviceptr at = 0;
    size_t bytes = 0;
    unsigned count = 0;
    int value = 0;

    NAMES_NOTHING(cuModuleUnload, ended.module);
    NAMES_NOTHING(cuModuleGetFunction, &f, ended.module, "none");
    NAMES_NOTHING(cuModuleGetGlobal_v2, &at, &bytes, ended.module, "table");
    NAMES_NOTHING(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_NUM_REGS, ended.function);
    NAMES_NOTHING(cuFuncSetCacheConfig, ended.function, CU_FUNC_CACHE_PREFER_L1);
    NAMES_NOTHING(cuLaunchKernel, ended.function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    NAMES_NOTHING(cuLibraryUnload, ended.library);
    NAMES_NOTHING(cuLibraryGetKernel, &k, ended.library, "none");
    NAMES_NOTHING(cuLibraryGetKernelCount, &count, ended.library);
    NAMES_NOTHING(cuLinkDestroy, ended.link);
}

void api_case_handles(void) {
    CUcontext ctx = NULL, first = api_begin();
    CUDA_ARRAY_DESCRIPTOR flat;
    CUDA_MEMSET_NODE_PARAMS fill = {0, 0, 1, 1, 1, 1};
    CUarray level = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode node = NULL;
    CUdeviceptr p = 0;
    size_t count = 0;

    OK(cuMemAlloc_v2, &p, 64);
    end_one_of_each();
    check_streams(p);
    check_code();
    NAMES_NOTHING(cuArrayDestroy, ended.array);
    NAMES_NOTHING(cuArrayGetDescriptor_v2, &flat, ended.array);
    NAMES_NOTHING(cuMipmappedArrayDestroy, ended.mipmap);
    NAMES_NOTHING(cuMipmappedArrayGetLevel, &level, ended.mipmap, 0);
    INVALID(cuGraphDestroy, ended.graph);
    INVALID(cuGraphGetNodes, ended.graph, NULL, &count);
    INVALID(cuGraphAddEmptyNode, &node, ended.graph, NULL, 0);
    INVALID(cuGraphAddMemsetNode, &node, ended.graph, NULL, 0, &fill, first);
    INVALID(cuGraphInstantiateWithFlags, &exec, ended.graph, 0);
    INVALID(cuGraphDestroyNode, ended.node);
    INVALID(cuGraphLaunch, ended.exec, NULL);
    INVALID(cuGraphExecDestroy, ended.exec);
    INVALID(cuMemPoolTrimTo, ended.pool, 0);
    INVALID(cuMemPoolDestroy, ended.pool);
    INVALID(cuMemAllocFromPoolAsync, &p, 64, ended.pool, NULL);
    INVALID(cuMemRelease, ended.block);
    OK(cuCtxCreate_v2, &ctx, 0, 0);
    OK(cuCtxDestroy_v2, ctx);
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent, ctx);
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent_v2, ctx);
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2, ctx);
    OK(cuCtxSynchronize);
    OK(cuMemFree_v2, p);
}
