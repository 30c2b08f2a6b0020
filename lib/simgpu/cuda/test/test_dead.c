/* A program that passes a handle that has ended: told and ended, or answered with an error. */
#define _GNU_SOURCE
#include "simgpu/cuda/test/cuda.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static CUcontext start(void) {
    CUcontext ctx;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    return ctx;
}

static CUresult stream_asked(void) {
    CUstream stream;
    OK(cuStreamCreate(&stream, 0));
    OK(cuStreamDestroy_v2(stream));
    return cuStreamQuery(stream);
}

static CUresult stream_destroyed(void) {
    CUstream stream;
    OK(cuStreamCreate(&stream, 0));
    OK(cuStreamDestroy_v2(stream));
    return cuStreamDestroy_v2(stream);
}

static CUresult event_recorded(void) {
    CUevent event;
    OK(cuEventCreate(&event, 0));
    OK(cuEventDestroy_v2(event));
    return cuEventRecord(event, NULL);
}

static CUresult context_pushed(void) {
    CUcontext ctx;
    OK(cuCtxCreate_v2(&ctx, 0, 0));
    OK(cuCtxDestroy_v2(ctx));
    return cuCtxPushCurrent_v2(ctx);
}

static CUresult event_of_a_context(void) {
    CUcontext ctx;
    CUevent event;
    OK(cuCtxCreate_v2(&ctx, 0, 0));
    OK(cuEventCreate(&event, 0));
    OK(cuCtxDestroy_v2(ctx));
    return cuEventQuery(event);
}

static CUresult stream_of_a_primary_context(void) {
    CUstream stream;
    OK(cuStreamCreate(&stream, 0));
    OK(cuDevicePrimaryCtxReset_v2(0));
    return cuStreamSynchronize(stream);
}

static CUresult primary_context(void) {
    CUcontext ctx;
    OK(cuCtxGetCurrent(&ctx));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    return cuCtxSetCurrent(ctx);
}

static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry other(.param .u64 a) { ret; }\n";

static CUresult function_of_a_module(void) {
    CUmodule module;
    CUfunction function;
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&function, module, "other"));
    OK(cuModuleUnload(module));
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static CUresult module_unloaded(void) {
    CUmodule module;
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleUnload(module));
    return cuModuleUnload(module);
}

static CUresult graph_launched(void) {
    CUgraph graph;
    CUgraphExec exec;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphExecDestroy(exec));
    return cuGraphLaunch(exec, NULL);
}

static CUresult graph_destroyed(void) {
    CUgraph graph;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphDestroy(graph));
    return cuGraphDestroy(graph);
}

static CUresult pool_asked(void) {
    CUmemoryPool pool;
    cuuint64_t bytes;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemPoolDestroy(pool));
    return cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes);
}

/* A mapping keeps the memory; the handle has ended all the same. */
static CUresult memory_released(void) {
    CUmemGenericAllocationHandle memory;
    CUdeviceptr address;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    OK(cuMemCreate(&memory, BLOCK, &prop, 0));
    OK(cuMemAddressReserve(&address, BLOCK, 0, 0, 0));
    OK(cuMemMap(address, BLOCK, 0, memory, 0));
    OK(cuMemRelease(memory));
    return cuMemRelease(memory);
}

static CUresult array_destroyed(void) {
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR what = {64, 64, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    OK(cuArrayCreate_v2(&array, &what));
    OK(cuArrayDestroy(array));
    return cuArrayDestroy(array);
}

static const struct {
    CUresult (*act)(void);
    const char *call, *kind;
    CUresult answer;
} cases[] = {
    {stream_asked, "cuStreamQuery", "stream", CUDA_ERROR_INVALID_HANDLE},
    {stream_destroyed, "cuStreamDestroy_v2", "stream", CUDA_ERROR_INVALID_HANDLE},
    {event_recorded, "cuEventRecord", "event", CUDA_ERROR_INVALID_HANDLE},
    {context_pushed, "cuCtxPushCurrent_v2", "context", CUDA_ERROR_INVALID_CONTEXT},
    {event_of_a_context, "cuEventQuery", "event", CUDA_ERROR_INVALID_HANDLE},
    {stream_of_a_primary_context, "cuStreamSynchronize", "stream", CUDA_ERROR_INVALID_HANDLE},
    {primary_context, "cuCtxSetCurrent", "context", CUDA_ERROR_INVALID_CONTEXT},
    {function_of_a_module, "cuLaunchKernel", "function", CUDA_ERROR_INVALID_HANDLE},
    {module_unloaded, "cuModuleUnload", "module", CUDA_ERROR_INVALID_HANDLE},
    {graph_launched, "cuGraphLaunch", "executable graph", CUDA_ERROR_INVALID_VALUE},
    {graph_destroyed, "cuGraphDestroy", "graph", CUDA_ERROR_INVALID_VALUE},
    {pool_asked, "cuMemPoolGetAttribute", "memory pool", CUDA_ERROR_INVALID_VALUE},
    {memory_released, "cuMemRelease", "memory allocation", CUDA_ERROR_INVALID_VALUE},
    {array_destroyed, "cuArrayDestroy", "array", CUDA_ERROR_INVALID_HANDLE},
};
#define CASES (sizeof cases / sizeof *cases)

static void make(uint64_t dead_handles) {
    sim_machine machine;
    setting_describe(&machine);
    machine.dead_handles = dead_handles;
    setting_make(&machine);
}

static int answered(int i) {
    start();
    CHECK_EQUAL(cases[i].act(), cases[i].answer);
    CHECK_EQUAL(sg_driver.instance.state->dead_handles, (unsigned)i + 1);
    return 0;
}

/* Returns as little as it can: what the driver says goes to the descriptor. */
static int ended(int packed) {
    const struct rlimit none = {0};
    dup2(packed >> 8, STDERR_FILENO);
    setrlimit(RLIMIT_CORE, &none);
    start();
    cases[packed & 255].act();
    return 0;
}

static void programs_are_ended(void) {
    make(SIM_DEAD_END);
    for (unsigned i = 0; i < CASES; i++) {
        char said[1024], call[64], kind[64];
        int ends[2];
        CHECK_EQUAL(pipe2(ends, O_CLOEXEC), 0);
        CHECK_EQUAL(cuda_child(ended, ends[1] << 8 | (int)i), 128 + SIGABRT);
        close(ends[1]);
        ssize_t size = read(ends[0], said, sizeof said - 1);
        close(ends[0]);
        CHECK(size > 0);
        said[size] = '\0';
        snprintf(call, sizeof call, "simgpu: %s was given the ", cases[i].call);
        snprintf(kind, sizeof kind, " the %s 0x", cases[i].kind);
        if (strncmp(said, call, strlen(call)) != 0 || strstr(said, kind) == NULL) {
            printf("case %u, %s of a %s, said: %s\n", i, cases[i].call, cases[i].kind, said);
            CHECK(false);
        }
    }
}

static void programs_are_answered(void) {
    make(SIM_DEAD_COUNT);
    for (unsigned i = 0; i < CASES; i++) {
        CHECK_EQUAL(cuda_child(answered, (int)i), 0);
    }
}

static int numbers_are_new(int unused) {
    CUstream streams[64];
    (void)unused;
    start();
    for (int i = 0; i < 64; i++) {
        OK(cuStreamCreate(&streams[i], 0));
        OK(cuStreamDestroy_v2(streams[i]));
        for (int k = 0; k < i; k++) {
            CHECK(streams[k] != streams[i]);
        }
    }
    return 0;
}

static int numbers_come_back(int unused) {
    CUstream first, second;
    (void)unused;
    start();
    OK(cuStreamCreate(&first, 0));
    OK(cuStreamDestroy_v2(first));
    FAILS(cuStreamQuery(first), CUDA_ERROR_INVALID_HANDLE);
    OK(cuStreamCreate(&second, 0));
    CHECK(first == second);
    OK(cuStreamQuery(first));
    return 0;
}

/* A current context that another thread ends is not passed: calls answer what is documented. */
static int a_current_context_ends(int unused) {
    CUcontext ctx, second;
    CUdeviceptr address;
    (void)unused;
    ctx = start();
    OK(cuCtxCreate_v2(&second, 0, 0));
    OK(cuCtxPushCurrent_v2(ctx));
    OK(cuCtxDestroy_v2(second));
    OK(cuCtxPopCurrent_v2(&ctx));
    FAILS(cuMemAlloc_v2(&address, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    FAILS(cuStreamSynchronize(NULL), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuCtxSetCurrent(ctx));
    return 0;
}

int main(void) {
    programs_are_answered();
    CHECK_EQUAL(cuda_child(numbers_are_new, 0), 0);
    programs_are_ended();
    CHECK_EQUAL(cuda_child(a_current_context_ends, 0), 0);
    make(SIM_DEAD_REUSE);
    CHECK_EQUAL(cuda_child(numbers_come_back, 0), 0);
    return 0;
}
