/* Memory that comes without an allocation of its own is kept on the GPU in a swap share too: code,
 * stacks, graphs, what descriptors carry. After each step the kept account is what the driver has
 * beside managed memory, but for parts of blocks. */
#define _GNU_SOURCE
#include "cuda/test/sim.h"

#include <unistd.h>

#include "share/share.h"

#define LIMIT (1024 * MIB)
#define STAYS (512 * MIB)
#define SLACK (2 * BLOCK) /* small variables, which share blocks, are charged more */
#define OK(fn, ...) CHECK_EQUAL(CUDA(&s, fn)(__VA_ARGS__), CUDA_SUCCESS)
#define FULL(fn, ...) CHECK_EQUAL(CUDA(&s, fn)(__VA_ARGS__), CUDA_ERROR_OUT_OF_MEMORY)

#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"
static const char large[] = HEAD ".global .b8 large[104857600];\n.visible .entry k() { ret; }\n";
static const char huge[] = HEAD ".global .b8 huge[629145600];\n.visible .entry k() { ret; }\n";

static struct setting s;
static CUdeviceptr all; /* what can leave the GPU, as much as may be */

static uint64_t kept_used(void) {
    return used_bytes(s.share, dv_share_kept(s.share, 0));
}

static void check_account(void) {
    sim_look();
    uint64_t truth = sim_seen(&s, 0, "used") - sim_seen(&s, 0, "managed");
    CHECK(kept_used() >= truth && kept_used() <= truth + SLACK);
    CHECK_EQUAL(used_bytes(s.share, 0), LIMIT - STAYS);
    CHECK_EQUAL(pending_bytes(s.share, 0), 0);
    CHECK_EQUAL(pending_bytes(s.share, 1), 0);
}

static void code(void) {
    CUmodule module;
    CUlibrary library;
    CUcontext second;
    uint64_t before = kept_used();
    FULL(cuModuleLoadData, &module, huge);
    FULL(cuLibraryLoadData, &library, huge, NULL, NULL, 0, NULL, NULL, 0);
    OK(cuModuleLoadData, &module, large);
    CHECK_EQUAL(kept_used(), before + 100 * MIB);
    check_account();
    OK(cuModuleUnload, module);
    OK(cuLibraryLoadData, &library, large, NULL, NULL, 0, NULL, NULL, 0);
    CHECK(kept_used() >= before + 100 * MIB);
    CHECK_EQUAL(used_bytes(s.share, 0), LIMIT - STAYS);
    OK(cuCtxCreate_v2, &second, 0, 0); /* which has the library's variables too */
    CHECK(kept_used() >= before + 200 * MIB);
    CHECK_EQUAL(used_bytes(s.share, 0), LIMIT - STAYS);
    OK(cuCtxDestroy_v2, second);
    OK(cuLibraryUnload, library);
    CHECK_EQUAL(kept_used(), before);
    check_account();
}

static void stacks(void) {
    uint64_t before = kept_used();
    FULL(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 65536);
    OK(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 8192);
    CHECK(kept_used() > before + 100 * MIB);
    check_account();
    OK(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 1024);
    CHECK_EQUAL(kept_used(), before);
    check_account();
}

static void graphs(void) {
    CUgraph graph;
    CUgraphNode alloc, give;
    CUgraphExec exec;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
        .bytesize = 60 * MIB};
    uint64_t before = kept_used();
    OK(cuGraphCreate, &graph, 0);
    OK(cuGraphAddMemAllocNode, &alloc, graph, NULL, 0, &params);
    OK(cuGraphAddMemFreeNode, &give, graph, &alloc, 1, params.dptr);
    OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
    OK(cuGraphLaunch, exec, NULL);
    CHECK(kept_used() >= before + 60 * MIB);
    check_account();
    OK(cuCtxSynchronize);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, graph);
    OK(cuDeviceGraphMemTrim, 0);
    CHECK_EQUAL(kept_used(), before);
    check_account();
}

/* Exported memory is the share's as long as a descriptor is open. */
static void descriptors(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle memory, same;
    size_t free, total;
    int file = -1;
    uint64_t before = kept_used();
    OK(cuMemCreate, &memory, 40 * MIB, &prop, 0);
    OK(cuMemExportToShareableHandle, &file, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    CHECK_EQUAL(kept_used(), before + 40 * MIB);
    OK(cuMemRelease, memory);
    CHECK_EQUAL(kept_used(), before + 40 * MIB);
    check_account();
    OK(cuMemImportFromShareableHandle, &same, (void *)(intptr_t)file,
       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CHECK_EQUAL(kept_used(), before + 40 * MIB);
    OK(cuMemRelease, same);
    CHECK(close(file) == 0);
    OK(cuMemGetInfo_v2, &free, &total); /* looks for descriptors that were closed */
    CHECK_EQUAL(kept_used(), before);
    check_account();
}

/* A pool's memory, which is given back at synchronisation, makes room for an array. */
static void pools_make_room(void) {
    CUDA_ARRAY_DESCRIPTOR plane = {
        .Width = 4096, .Height = 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUdeviceptr pooled;
    CUarray array;
    OK(cuMemAllocAsync, &pooled, 320 * MIB, NULL);
    check_account();
    FULL(cuArrayCreate_v2, &array, &plane);
    OK(cuMemFreeAsync, pooled, NULL);
    OK(cuStreamSynchronize, NULL);
    OK(cuArrayCreate_v2, &array, &plane);
    check_account();
    OK(cuArrayDestroy, array);
}

int main(void) {
    sim_make_swap(&s, 1, LIMIT, STAYS);
    setting_context(&s);
    OK(cuMemAlloc_v2, &all, LIMIT - STAYS);
    check_account();
    code();
    stacks();
    graphs();
    descriptors();
    pools_make_room();
    OK(cuMemFree_v2, all);
    return 0;
}
