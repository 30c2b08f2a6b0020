/* Contexts: counts, ends, what they take with them, overhead. */
#include "simgpu/cuda/test/cuda.h"

#include <pthread.h>

static void *without_context(void *unused) {
    CUdeviceptr a;
    CUcontext ctx;

    FAILS(cuMemAlloc_v2(&a, 1), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxGetCurrent(&ctx));
    CHECK(ctx == NULL);
    return unused;
}

static void check_before_init(void) {
    CUdevice device;
    CUcontext ctx;
    CUdeviceptr a;

    FAILS(cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
    FAILS(cuMemAlloc_v2(&a, 1), CUDA_ERROR_NOT_INITIALIZED);
    FAILS(cuCtxGetCurrent(&ctx), CUDA_ERROR_NOT_INITIALIZED);
    FAILS(cuInit(1), CUDA_ERROR_INVALID_VALUE);
}

static void check_stack(void) {
    CUcontext a, b, top;

    CHECK_EQUAL(cuda_true_all(), 0);
    OK(cuCtxCreate_v2(&a, 0, 0));
    CHECK_EQUAL(cuda_true(SG_CONTEXT), 4 * MIB);
    OK(cuCtxCreate_v2(&b, CU_CTX_SCHED_YIELD, 0));
    CHECK_EQUAL(cuda_true(SG_CONTEXT), 4 * MIB);
    OK(cuCtxGetCurrent(&top));
    CHECK(top == b);
    OK(cuCtxPopCurrent_v2(&top));
    OK(cuCtxGetCurrent(&top));
    CHECK(top == a);
    OK(cuCtxSetCurrent(b));
    OK(cuCtxDestroy_v2(b));
    FAILS(cuCtxDestroy_v2(b), CUDA_ERROR_INVALID_CONTEXT);
    FAILS(cuCtxSetCurrent(b), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxDestroy_v2(a));
    CHECK_EQUAL(cuda_true_all(), 0);
    FAILS(cuCtxPopCurrent_v2(NULL), CUDA_ERROR_INVALID_CONTEXT);
    FAILS(cuCtxCreate_v2(&a, 0, 9), CUDA_ERROR_INVALID_DEVICE);
}

/* A context takes its linear memory and arrays with it, but neither pools nor physical memory. */
static void check_end(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUDA_ARRAY_DESCRIPTOR what = {1000, 700, CU_AD_FORMAT_FLOAT, 2};
    CUmemGenericAllocationHandle h;
    CUmipmappedArray mipmap;
    CUDA_ARRAY3D_DESCRIPTOR deep = {64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUdeviceptr a, pooled, managed;
    CUarray array;
    CUcontext ctx;

    OK(cuCtxCreate_v2(&ctx, 0, 0));
    for (int i = 0; i < 100; i++) {
        OK(cuMemAlloc_v2(&a, 30000));
    }
    OK(cuMemAlloc_v2(&a, 30 * MIB));
    OK(cuArrayCreate_v2(&array, &what));
    OK(cuMipmappedArrayCreate(&mipmap, &deep, 3));
    OK(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemsetD8_v2(managed, 1, MIB));
    OK(cuMemCreate(&h, BLOCK, &prop, 0));
    OK(cuMemAllocAsync(&pooled, MIB, NULL));
    OK(cuCtxDestroy_v2(ctx));
    CHECK_EQUAL(cuda_true_all(), BLOCK + 32 * MIB);
    CHECK_EQUAL(cuda_true(SG_VMM), BLOCK);
    FAILS(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    OK(cuMemRelease(h));
    OK(cuCtxCreate_v2(&ctx, 0, 0));
    OK(cuMemFree_v2(pooled));
    OK(cuCtxSynchronize());
    OK(cuCtxDestroy_v2(ctx));
    CHECK_EQUAL(cuda_true_all(), 0);
}

static void check_primary(void) {
    CUcontext a, b;
    CUdeviceptr p;
    unsigned flags;
    int active;

    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK_EQUAL(active, 0);
    FAILS(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuDevicePrimaryCtxRetain(&a, 0));
    OK(cuDevicePrimaryCtxRetain(&b, 0));
    CHECK(a == b);
    FAILS(cuCtxDestroy_v2(a), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxSetCurrent(a));
    OK(cuMemAlloc_v2(&p, MIB));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    CHECK_EQUAL(cuda_true_all(), 6 * MIB);
    OK(cuDevicePrimaryCtxReset_v2(0));
    CHECK_EQUAL(cuda_true_all(), 0);
    FAILS(cuMemAlloc_v2(&p, MIB), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuDevicePrimaryCtxRetain(&a, 0));
    OK(cuCtxSetCurrent(a));
    OK(cuMemAlloc_v2(&p, MIB));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    CHECK_EQUAL(cuda_true_all(), 0);
}

/* A GPU too full for a context refuses it and is left as it was. */
static void check_refusal(void) {
    CUcontext ctx = (CUcontext)7;

    pid_t other = setting_process("t", 1, 119, 0);
    FAILS(cuCtxCreate_v2(&ctx, 0, 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(ctx == (CUcontext)7);
    FAILS(cuDevicePrimaryCtxRetain(&ctx, 1), CUDA_ERROR_OUT_OF_MEMORY);
    setting_kill(other);
    OK(cuCtxCreate_v2(&ctx, 0, 1));
    OK(cuCtxDestroy_v2(ctx));
}

static void check_peers(void) {
    CUcontext a, b, c;
    int can;

    OK(cuCtxCreate_v2(&b, 0, 1));
    OK(cuCtxCreate_v2(&c, 0, 3));
    OK(cuCtxCreate_v2(&a, 0, 0));
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    CHECK_EQUAL(can, 1);
    OK(cuDeviceCanAccessPeer(&can, 0, 3));
    CHECK_EQUAL(can, 0);
    OK(cuCtxEnablePeerAccess(b, 0));
    FAILS(cuCtxEnablePeerAccess(b, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    FAILS(cuCtxEnablePeerAccess(c, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    OK(cuCtxDisablePeerAccess(b));
    FAILS(cuCtxDisablePeerAccess(b), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    OK(cuCtxDestroy_v2(a));
    OK(cuCtxDestroy_v2(b));
    OK(cuCtxDestroy_v2(c));
}

static void expect_mode(int want) {
    int mode;

    OK(cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 2));
    CHECK_EQUAL(mode, want);
}

/* A GPU's compute mode refuses contexts that are made after it was set, and leaves those that are there. */
static void check_compute_modes(void) {
    struct sg_instance *in = &sg_driver.instance;
    CUcontext ctx, primary, third;
    CUdeviceptr a;

    expect_mode(CU_COMPUTEMODE_DEFAULT);
    OK(cuCtxCreate_v2(&ctx, 0, 2));
    OK(cuDevicePrimaryCtxRetain(&primary, 2));
    sg_compute_mode_set(in, 2, SG_COMPUTE_PROHIBITED);
    expect_mode(CU_COMPUTEMODE_PROHIBITED);
    FAILS(cuCtxCreate_v2(&third, 0, 2), CUDA_ERROR_DEVICE_UNAVAILABLE);
    OK(cuDevicePrimaryCtxRetain(&primary, 2));
    OK(cuMemAlloc_v2(&a, MIB));
    OK(cuDevicePrimaryCtxRelease_v2(2));
    OK(cuDevicePrimaryCtxRelease_v2(2));
    FAILS(cuDevicePrimaryCtxRetain(&primary, 2), CUDA_ERROR_DEVICE_UNAVAILABLE);

    sg_compute_mode_set(in, 2, SG_COMPUTE_EXCLUSIVE_PROCESS);
    expect_mode(CU_COMPUTEMODE_EXCLUSIVE_PROCESS);
    FAILS(cuDevicePrimaryCtxRetain(&primary, 2), CUDA_ERROR_DEVICE_UNAVAILABLE);
    OK(cuMemFree_v2(a));
    OK(cuCtxDestroy_v2(ctx));
    OK(cuDevicePrimaryCtxRetain(&primary, 2));
    FAILS(cuCtxCreate_v2(&ctx, 0, 2), CUDA_ERROR_DEVICE_UNAVAILABLE);
    OK(cuDevicePrimaryCtxRelease_v2(2));

    pid_t other = setting_process("", 2, 1, 0);
    FAILS(cuCtxCreate_v2(&ctx, 0, 2), CUDA_ERROR_DEVICE_UNAVAILABLE);
    OK(cuCtxCreate_v2(&ctx, 0, 1));
    OK(cuCtxDestroy_v2(ctx));
    setting_kill(other);
    OK(cuCtxCreate_v2(&ctx, 0, 2));
    OK(cuCtxDestroy_v2(ctx));
    sg_compute_mode_set(in, 2, SG_COMPUTE_DEFAULT);
}

static int forked(int unused) {
    CUdeviceptr a;
    int count;

    (void)unused;
    FAILS(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    FAILS(cuMemAlloc_v2(&a, 1), CUDA_ERROR_NOT_INITIALIZED);
    FAILS(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
    return 0;
}

int main(void) {
    sim_machine machine;
    pthread_t thread;
    CUcontext ctx;

    setting_describe(&machine);
    setting_make(&machine);
    check_before_init();
    OK(cuInit(0));
    check_stack();
    check_end();
    check_primary();
    check_refusal();
    check_peers();
    check_compute_modes();
    OK(cuCtxCreate_v2(&ctx, 0, 0));
    CHECK_EQUAL(pthread_create(&thread, NULL, without_context, NULL), 0);
    pthread_join(thread, NULL);
    CHECK_EQUAL(cuda_child(forked, 0), 0);
    CHECK_EQUAL(cuda_true(SG_CONTEXT), 4 * MIB);
    return 0;
}
