/* Memory that no call asks for: code, which is loaded late, and local memory. */
#include "simgpu/cuda/test/cuda.h"

#define CODE (3 * MIB)

static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry flat() { ret; }\n"
                          ".visible .entry deep(.param .u64 p)\n{\n"
                          "  .local .align 16 .b8 depot[4096];\n  ret;\n}\n"
                          ".visible .entry flat_too() { ret; }\n";

static uint64_t base; /* what the context took at its creation */

static void describe(sim_machine *machine) {
    machine->gpus[0].code_bytes = CODE;
    machine->gpus[0].memory_bytes = 64ull << 30; /* room for local memory */
}

static uint64_t whole(uint64_t bytes) {
    return (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

static uint64_t grown(void) {
    return cuda_true(SG_CONTEXT) - base;
}

static CUresult launch(CUfunction f) {
    return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

/* A library's kernels take memory with their first launch and not before. */
static CUlibrary check_late_code(void) {
    CUlibrary library;
    CUkernel flat, too;

    OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&flat, library, "flat"));
    OK(cuLibraryGetKernel(&too, library, "flat_too"));
    CHECK_EQUAL(grown(), 0);
    OK(launch((CUfunction)flat));
    CHECK_EQUAL(grown(), whole(CODE));
    OK(launch((CUfunction)flat));
    CHECK_EQUAL(grown(), whole(CODE));
    OK(launch((CUfunction)too));
    CHECK_EQUAL(grown(), whole(2 * CODE));
    return library;
}

/* A module's go with it. */
static void check_unload(void) {
    CUmodule module;
    CUfunction flat;

    OK(cuModuleLoadData(&module, ptx));
    CHECK_EQUAL(grown(), whole(2 * CODE));
    OK(cuModuleGetFunction(&flat, module, "flat"));
    CHECK_EQUAL(grown(), whole(3 * CODE));
    OK(cuModuleUnload(module));
    CHECK_EQUAL(grown(), whole(2 * CODE));
}

/* Local memory for all threads of the GPU: at a limit, and at the launch that needs it. */
static void check_local(CUlibrary library) {
    CUkernel deep;
    size_t stack;
    int threads, local;

    OK(cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 0));
    uint64_t every = (uint64_t)threads * sg_driver.devices[0].model->multiprocessors;
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
    CHECK_EQUAL(grown(), whole(2 * CODE + 1024 * every));
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 512));
    CHECK_EQUAL(grown(), whole(2 * CODE));
    OK(cuLibraryGetKernel(&deep, library, "deep"));
    OK(cuKernelGetAttribute(&local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, deep, 0));
    CHECK_EQUAL(local, 4096);
    OK(launch((CUfunction)deep));
    CHECK_EQUAL(grown(), whole(3 * CODE + 3072 * every));
    OK(cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE));
    CHECK_EQUAL(stack, 4096);
    CHECK_EQUAL(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1u << 20), CUDA_ERROR_INVALID_VALUE);
}

/* A GPU without room refuses the launch, which can be tried again. */
static void check_full(void) {
    CUmodule module;
    CUfunction flat;
    size_t available, total;
    CUdeviceptr all;

    OK(cuModuleLoadData(&module, ptx));
    OK(cuMemGetInfo_v2(&available, &total));
    OK(cuMemAlloc_v2(&all, available));
    uint64_t before = grown();
    FAILS(cuModuleGetFunction(&flat, module, "flat"), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(grown(), before);
    OK(cuMemFree_v2(all));
    OK(cuModuleGetFunction(&flat, module, "flat"));
    OK(cuModuleUnload(module));
}

int main(void) {
    CUcontext ctx = cuda_start(describe);

    CHECK(ctx != NULL);
    base = cuda_true(SG_CONTEXT);
    CUlibrary library = check_late_code();
    check_unload();
    check_local(library);
    check_full();
    OK(cuDevicePrimaryCtxReset_v2(0));
    CHECK_EQUAL(cuda_true_all(), 0);
    return 0;
}
