/* Every way to give the GPU work is counted, and what is not its own work is not. */
#include "cuda/test/busy.h"

#include <stddef.h>
#include <string.h>

#define BYTES 4096

static struct setting s;
static CUstream stream;
static CUfunction function;
static CUdeviceptr a, b;
static CUarray array, other;
static char host[BYTES];
static uint64_t ns = 10 * US;
static void *parameters[] = {&ns};

/* Makes what a stream owes show in the page: a launch that costs more than a portion does. */
static void flush(CUstream in) {
    uint64_t long_ns = MS;
    void *long_parameters[] = {&long_ns};
    CHECK_EQUAL(CUDA(&s, cuLaunchKernel)(function, 2, 1, 1, 1, 1, 1, 0, in, long_parameters, NULL),
                CUDA_SUCCESS);
    busy_sync(&s, in);
}

#define COUNTS(expected, in, call)                                                                 \
    do {                                                                                           \
        flush(in);                                                                                 \
        uint64_t before_ = busy_bucket(&s, 0).launches;                                            \
        CHECK_EQUAL(call, CUDA_SUCCESS);                                                           \
        flush(in);                                                                                 \
        CHECK_EQUAL(busy_bucket(&s, 0).launches - before_, (expected) + 1);                        \
    } while (0)

/* A function with its variant for a default stream per thread, in each kind of stream. */
#define STREAM_FORMS(expected, fn, ...)                                                            \
    do {                                                                                           \
        CUstream in = stream;                                                                      \
        COUNTS(expected, stream, CUDA(&s, fn)(__VA_ARGS__));                                       \
        COUNTS(expected, stream, CUDA(&s, fn##_ptsz)(__VA_ARGS__));                                \
        in = NULL;                                                                                 \
        COUNTS(expected, NULL, CUDA(&s, fn)(__VA_ARGS__));                                         \
        COUNTS(expected, CU_STREAM_PER_THREAD, CUDA(&s, fn##_ptsz)(__VA_ARGS__));                  \
    } while (0)
#define DEFAULT_FORMS(expected, fn, ...)                                                           \
    do {                                                                                           \
        COUNTS(expected, NULL, CUDA(&s, fn)(__VA_ARGS__));                                         \
        COUNTS(expected, CU_STREAM_PER_THREAD, CUDA(&s, fn##_ptds)(__VA_ARGS__));                  \
    } while (0)

static void kernels_count(void) {
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, NULL, 0};
    CUDA_LAUNCH_PARAMS one = {.function = function,
                              .gridDimX = 1,
                              .gridDimY = 1,
                              .gridDimZ = 1,
                              .blockDimX = 1,
                              .blockDimY = 1,
                              .blockDimZ = 1,
                              .hStream = stream,
                              .kernelParams = parameters};
    STREAM_FORMS(1, cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, in, parameters, NULL);
    STREAM_FORMS(1, cuLaunchCooperativeKernel, function, 1, 1, 1, 1, 1, 1, 0, in, parameters);
    COUNTS(1, stream, CUDA(&s, cuLaunchKernelEx)(&config, function, parameters, NULL));
    COUNTS(1, stream, CUDA(&s, cuLaunchKernelEx_ptsz)(&config, function, parameters, NULL));
    config.hStream = NULL;
    COUNTS(1, NULL, CUDA(&s, cuLaunchKernelEx)(&config, function, parameters, NULL));
    COUNTS(1, CU_STREAM_PER_THREAD,
           CUDA(&s, cuLaunchKernelEx_ptsz)(&config, function, parameters, NULL));
    COUNTS(1, stream, CUDA(&s, cuLaunchCooperativeKernelMultiDevice)(&one, 1, 0));
}

static void old_launches_count(void) {
    CHECK_EQUAL(CUDA(&s, cuFuncSetBlockShape)(function, 1, 1, 1), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuParamSetSize)(function, sizeof ns), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuParamSetv)(function, 0, &ns, sizeof ns), CUDA_SUCCESS);
    COUNTS(1, NULL, CUDA(&s, cuLaunch)(function));
    COUNTS(1, NULL, CUDA(&s, cuLaunchGrid)(function, 1, 1));
    COUNTS(1, stream, CUDA(&s, cuLaunchGridAsync)(function, 1, 1, stream));
}

static void graphs_count(void) {
    CUgraph graph;
    CUgraphExec exec;
    CHECK_EQUAL(CUDA(&s, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                CUDA_SUCCESS);
    CHECK_EQUAL(busy_launch(&s, stream, ns), CUDA_SUCCESS);
    CHECK_EQUAL(busy_launch(&s, stream, ns), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
    STREAM_FORMS(1, cuGraphLaunch, exec, in);
    STREAM_FORMS(0, cuGraphUpload, exec, in);
    CHECK_EQUAL(CUDA(&s, cuGraphExecDestroy)(exec), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuGraphDestroy)(graph), CUDA_SUCCESS);
}

static void fills_count(void) {
    STREAM_FORMS(1, cuMemsetD8Async, a, 1, BYTES, in);
    STREAM_FORMS(1, cuMemsetD16Async, a, 1, BYTES / 2, in);
    STREAM_FORMS(1, cuMemsetD32Async, a, 1, BYTES / 4, in);
    STREAM_FORMS(1, cuMemsetD2D8Async, a, 64, 1, 64, 4, in);
    STREAM_FORMS(1, cuMemsetD2D16Async, a, 64, 1, 32, 4, in);
    STREAM_FORMS(1, cuMemsetD2D32Async, a, 64, 1, 16, 4, in);
    DEFAULT_FORMS(1, cuMemsetD8_v2, a, 1, BYTES);
    DEFAULT_FORMS(1, cuMemsetD16_v2, a, 1, BYTES / 2);
    DEFAULT_FORMS(1, cuMemsetD32_v2, a, 1, BYTES / 4);
    DEFAULT_FORMS(1, cuMemsetD2D8_v2, a, 64, 1, 64, 4);
    DEFAULT_FORMS(1, cuMemsetD2D16_v2, a, 64, 1, 32, 4);
    DEFAULT_FORMS(1, cuMemsetD2D32_v2, a, 64, 1, 16, 4);
}

static void copies_within_the_device_count(void) {
    CUcontext context;
    CHECK_EQUAL(CUDA(&s, cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    STREAM_FORMS(1, cuMemcpyDtoDAsync_v2, a, b, BYTES, in);
    STREAM_FORMS(1, cuMemcpyAsync, a, b, BYTES, in);
    STREAM_FORMS(1, cuMemcpyPeerAsync, a, context, b, context, BYTES, in);
    DEFAULT_FORMS(1, cuMemcpyDtoD_v2, a, b, BYTES);
    DEFAULT_FORMS(1, cuMemcpy, a, b, BYTES);
    DEFAULT_FORMS(1, cuMemcpyPeer, a, context, b, context, BYTES);
    DEFAULT_FORMS(1, cuMemcpyAtoA_v2, array, 0, other, 0, BYTES);
    DEFAULT_FORMS(1, cuMemcpyAtoD_v2, a, array, 0, BYTES);
    DEFAULT_FORMS(1, cuMemcpyDtoA_v2, array, 0, a, BYTES);
}

static void copies_to_and_from_the_host_do_not(void) {
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)host;
    STREAM_FORMS(0, cuMemcpyHtoDAsync_v2, a, host, BYTES, in);
    STREAM_FORMS(0, cuMemcpyDtoHAsync_v2, host, a, BYTES, in);
    STREAM_FORMS(0, cuMemcpyAsync, at, a, BYTES, in);
    STREAM_FORMS(0, cuMemcpyHtoAAsync_v2, array, 0, host, BYTES, in);
    STREAM_FORMS(0, cuMemcpyAtoHAsync_v2, host, array, 0, BYTES, in);
    DEFAULT_FORMS(0, cuMemcpyHtoD_v2, a, host, BYTES);
    DEFAULT_FORMS(0, cuMemcpyDtoH_v2, host, a, BYTES);
    DEFAULT_FORMS(0, cuMemcpy, at, a, BYTES);
    DEFAULT_FORMS(0, cuMemcpyHtoA_v2, array, 0, host, BYTES);
    DEFAULT_FORMS(0, cuMemcpyAtoH_v2, host, array, 0, BYTES);
}

/* By the two ends that the description names. */
static void shaped_copies_count_by_their_ends(void) {
    CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = a,
                           .srcPitch = 64,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = b,
                           .dstPitch = 64,
                           .WidthInBytes = 64,
                           .Height = 4};
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                         .srcDevice = a,
                         .srcPitch = 64,
                         .srcHeight = 4,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = b,
                         .dstPitch = 64,
                         .dstHeight = 4,
                         .WidthInBytes = 64,
                         .Height = 4,
                         .Depth = 2};
    STREAM_FORMS(1, cuMemcpy2DAsync_v2, &plane, in);
    STREAM_FORMS(1, cuMemcpy3DAsync_v2, &box, in);
    DEFAULT_FORMS(1, cuMemcpy2D_v2, &plane);
    DEFAULT_FORMS(1, cuMemcpy2DUnaligned_v2, &plane);
    DEFAULT_FORMS(1, cuMemcpy3D_v2, &box);
    plane.dstMemoryType = CU_MEMORYTYPE_HOST;
    plane.dstHost = host;
    box.srcDevice = (CUdeviceptr)(uintptr_t)host;
    STREAM_FORMS(0, cuMemcpy2DAsync_v2, &plane, in);
    STREAM_FORMS(0, cuMemcpy3DAsync_v2, &box, in);
    DEFAULT_FORMS(0, cuMemcpy2D_v2, &plane);
    DEFAULT_FORMS(0, cuMemcpy3D_v2, &box);
}

static void what_the_driver_refuses_does_not(void) {
    flush(stream);
    uint64_t before = busy_bucket(&s, 0).launches;
    CHECK(CUDA(&s, cuLaunchKernel)(function, 0, 1, 1, 1, 1, 1, 0, stream, parameters, NULL) !=
          CUDA_SUCCESS);
    flush(stream);
    CHECK_EQUAL(busy_bucket(&s, 0).launches - before, 1);
}

static void make_memory(void) {
    CUDA_ARRAY_DESCRIPTOR shape = {.Width = BYTES, .Format = CU_AD_FORMAT_UNSIGNED_INT8};
    shape.NumChannels = 1;
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&a, BYTES), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&b, BYTES), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuArrayCreate_v2)(&array, &shape), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuArrayCreate_v2)(&other, &shape), CUDA_SUCCESS);
}

int main(void) {
    busy_make(&s, 1);
    function = busy_kernel(&s);
    make_memory();
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    for (int i = 0; i < 5; i++) {
        flush(stream);
    }
    kernels_count();
    old_launches_count();
    graphs_count();
    fills_count();
    copies_within_the_device_count();
    copies_to_and_from_the_host_do_not();
    shaped_copies_count_by_their_ends();
    what_the_driver_refuses_does_not();
    return 0;
}
