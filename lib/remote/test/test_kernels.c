/* Launches through client and worker: what the driver gets is what the program gave, whatever the layout; what the driver
 * refuses, the client or the worker refuses; records that lie end the link or are answered. */
#include "remote/client/pack.h"
#include "remote/generated/cuda_decode.h"
#include "remote/launch.h"
#include "remote/test/loopback.h"
#include "remote/test/pair.h"
#include "remote/test/spy.h"
#include "simgpu/machine/test/setting.h"

#include <string.h>

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)
#define FAILS(call, result) CHECK_EQUAL(call, result)

static struct remote_cuda_driver driver, spied;
static CUcontext context;
static bool current = true;

CUresult remote_current_result(void) {
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static uint64_t state = 7;

static uint64_t next(void) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return state >> 33;
}

/* One kernel with drawn parameters, as text and as what its parameters must be. */
#define MOST_PARAMS 64u
static struct {
    char text[1 << 16];
    size_t count, bytes;
    size_t at[MOST_PARAMS], size[MOST_PARAMS];
} drawn;

static void draw_kernel(void) {
    static const char *const types[] = {".u8", ".s16", ".f32", ".b64", ".u32", ".f64"};
    static const size_t sizes[] = {1, 2, 4, 8, 4, 8};
    char *to = drawn.text;
    size_t count = next() % (next() % 4 ? 8 : MOST_PARAMS);

    drawn.count = drawn.bytes = 0;
    to += sprintf(to, ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry drawn(");
    for (size_t i = 0; i < count; i++) {
        size_t type = next() % 6, align = sizes[type], size = align;
        const char *comma = i ? ", " : "";

        if (next() % 3 == 0) {
            align = (size_t)1 << next() % 7;
            size = 1 + next() % (next() % 8 ? 40 : 8000);
        }
        size_t at = (drawn.bytes + align - 1) / align * align;
        if (at + size > REMOTE_PARAM_BYTES) {
            break;
        }
        to += size == sizes[type] && align == size
                  ? sprintf(to, "%s.param %s p%zu", comma, types[type], i)
                  : sprintf(to, "%s.param .align %zu .b8 p%zu[%zu]", comma, align, i, size);
        drawn.at[i] = at;
        drawn.size[i] = size;
        drawn.bytes = at + size;
        drawn.count++;
    }
    sprintf(to, ") { ret; }\n");
}

/* What parameters hold, and addresses of them that are not aligned. */
static unsigned char values[MOST_PARAMS][8192], packed[REMOTE_PARAM_BYTES];
static void *pointers[MOST_PARAMS];

static void draw_values(void) {
    memset(packed, 0, sizeof packed);
    for (size_t i = 0; i < drawn.count; i++) {
        pointers[i] = values[i] + next() % 8;
        for (size_t k = 0; k < drawn.size[i]; k++) {
            ((unsigned char *)pointers[i])[k] = (unsigned char)next();
        }
        memcpy(packed + drawn.at[i], pointers[i], drawn.size[i]);
    }
}

/* A module of the client's, through the generated call. */
CUresult stub_cuModuleLoadData(CUmodule *module, const void *image);

static void expect(CUfunction function, CUstream stream, size_t size) {
    CHECK_EQUAL((uint64_t)seen.function,
                loopback_handle(REMOTE_KIND_CUfunction, (uint64_t)function));
    CHECK_EQUAL((uint64_t)seen.stream, loopback_handle(REMOTE_KIND_CUstream, (uint64_t)stream));
    CHECK_EQUAL(seen.size, size);
    CHECK(memcmp(seen.bytes, packed, size) == 0);
    CHECK_EQUAL(loopback_outcome, REMOTE_ANSWERED);
}

static void launch_all(CUfunction f, CUstream stream, CUevent event) {
    const unsigned shape[7] = {1 + (unsigned)next() % 1000,  1 + (unsigned)next() % 65535,
                               1 + (unsigned)next() % 65535, 1 + (unsigned)next() % 32,
                               1 + (unsigned)next() % 4,     1 + (unsigned)next() % 8,
                               (unsigned)next() % 49152};
    size_t size = drawn.bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_BUFFER_POINTER, packed,
                     CU_LAUNCH_PARAM_END};
    CUlaunchAttribute attributes[3] = {
        {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = 3},
        {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, .value.programmaticEvent = {event, 5, 6}},
        {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {1, 2, 3}},
    };
    CUlaunchConfig config = {shape[0], shape[1], shape[2], shape[3],   shape[4],
                             shape[5], shape[6], stream,   attributes, (unsigned)next() % 4};

    OK(cuLaunchKernel(f, shape[0], shape[1], shape[2], shape[3], shape[4], shape[5], shape[6],
                      stream, pointers, NULL));
    expect(f, stream, drawn.bytes);
    CHECK(seen.has_params && !seen.has_extra);
    CHECK(memcmp(seen.shape, shape, sizeof shape) == 0);
    OK(cuLaunchKernel_ptsz(f, shape[0], shape[1], shape[2], shape[3], shape[4], shape[5], shape[6],
                           NULL, NULL, extra));
    expect(f, CU_STREAM_PER_THREAD, drawn.bytes);
    CHECK(seen.has_extra && !seen.has_params);
    OK(cuLaunchKernelEx(&config, f, pointers, NULL));
    expect(f, stream, drawn.bytes);
    CHECK(memcmp(seen.shape, shape, sizeof shape) == 0);
    CHECK_EQUAL(seen.count, config.numAttrs);
    for (unsigned i = 0; i < seen.count; i++) {
        CUlaunchAttribute want = attributes[i];

        if (i == 1) {
            want.value.programmaticEvent.event =
                (CUevent)loopback_handle(REMOTE_KIND_CUevent, (uint64_t)event);
        }
        CHECK(memcmp(&seen.attributes[i], &want, sizeof want) == 0);
    }
    OK(cuLaunchCooperativeKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, pointers));
    expect(f, stream, drawn.bytes);
}

static CUstream new_stream(void) {
    CUstream stream;

    OK(driver.cuStreamCreate(&stream, 0));
    return (CUstream)loopback_number(REMOTE_KIND_CUstream, (uint64_t)stream);
}

static void check_drawn(unsigned kernels) {
    CUstream stream = new_stream();
    CUevent event;

    OK(driver.cuEventCreate(&event, 0));
    event = (CUevent)loopback_number(REMOTE_KIND_CUevent, (uint64_t)event);
    for (unsigned i = 0; i < kernels; i++) {
        CUmodule module;
        CUfunction f;
        size_t count, at, size;

        draw_kernel();
        OK(stub_cuModuleLoadData(&module, drawn.text));
        OK(cuModuleGetFunction(&f, module, "drawn"));
        for (size_t k = 0; k < drawn.count && i % 2; k++) {
            OK(cuFuncGetParamInfo(f, k, &at, &size));
            CHECK(at == drawn.at[k] && size == drawn.size[k]);
        }
        for (int k = 0; k < 3; k++) {
            draw_values();
            launch_all(f, stream, event);
        }
        /* The layout was asked for once. */
        unsigned long sent = loopback_sent;
        OK(cuFuncGetParamCount(f, &count));
        CHECK_EQUAL(count, drawn.count);
        FAILS(cuFuncGetParamInfo(f, count, &at, &size), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQUAL(loopback_sent, sent);
        OK(driver.cuCtxSynchronize());
        OK(cuModuleUnload(module));
        FAILS(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, pointers, NULL),
              CUDA_ERROR_INVALID_HANDLE);
    }
}

static const char known[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry divvy_vecadd(.param .u64 a, .param .u64 b, .param .u64 "
    "c, .param .u32 n) { ret; }\n"
    ".visible .entry divvy_fill(.param .u64 a, .param .u32 b, .param .u64 c)"
    " { ret; }\n.visible .entry none() { ret; }\n";

#define N 5000
static float a[N], b[N], c[N];

static void expect_multiples(CUdeviceptr at, int of) {
    OK(driver.cuMemcpyDtoH_v2(c, at, sizeof c));
    for (int i = 0; i < N; i++) {
        CHECK(c[i] == (float)(of * i));
    }
}

/* Kernels that the simulated driver really runs. */
static void check_results(void) {
    CUdeviceptr at[3];
    CUmodule module;
    CUfunction add;
    unsigned n = N;

    OK(stub_cuModuleLoadData(&module, known));
    OK(cuModuleGetFunction(&add, module, "divvy_vecadd"));
    for (int i = 0; i < 3; i++) {
        OK(driver.cuMemAlloc_v2(&at[i], sizeof a));
    }
    for (int i = 0; i < N; i++) {
        a[i] = (float)i;
        b[i] = (float)(3 * i);
    }
    OK(driver.cuMemcpyHtoD_v2(at[0], a, sizeof a));
    OK(driver.cuMemcpyHtoD_v2(at[1], b, sizeof b));
    void *params[] = {&at[0], &at[1], &at[2], &n};
    OK(cuLaunchKernel(add, 20, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
    expect_multiples(at[2], 4);
    /* The same packed by the program, as tinygrad does it: another sum. */
    struct {
        CUdeviceptr a, b, c;
        unsigned n;
    } block = {at[2], at[2], at[0], N};
    size_t size = sizeof block;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel(add, 20, 1, 1, 256, 1, 1, 0, NULL, NULL, extra));
    expect_multiples(at[0], 8);
    for (int i = 0; i < 3; i++) {
        OK(driver.cuMemFree_v2(at[i]));
    }
    OK(cuModuleUnload(module));
}

/* The same refusals as the driver's, and no record where the client can tell. */
#define SAME(local, ...)                                                                           \
    do {                                                                                           \
        unsigned long sent_ = loopback_sent;                                                       \
        CUresult remote_ = cuLaunchKernel(f, __VA_ARGS__);                                         \
        CHECK_EQUAL(loopback_sent - sent_, (local) ? 0 : 1);                                       \
        CHECK_EQUAL(remote_, driver.cuLaunchKernel(direct, __VA_ARGS__));                          \
        CHECK(remote_ != CUDA_SUCCESS);                                                            \
    } while (0)

static void check_refusals(void) {
    CUmodule module;
    CUfunction f, direct;
    CUdeviceptr at = 0;
    unsigned value = 0;
    uint64_t n = 0;
    void *params[] = {&at, &value, &n};
    size_t size = 24;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    void *unknown[] = {(void *)7, packed, CU_LAUNCH_PARAM_END};

    OK(stub_cuModuleLoadData(&module, known));
    OK(cuModuleGetFunction(&f, module, "divvy_fill"));
    direct = (CUfunction)loopback_handle(REMOTE_KIND_CUfunction, (uint64_t)f);
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    SAME(true, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
    SAME(true, 1, 1, 1, 1, 0, 1, 0, NULL, params, NULL);
    SAME(true, 1, 65536, 1, 1, 1, 1, 0, NULL, params, NULL);
    SAME(true, 1, 1, 1, 1025, 1, 1, 0, NULL, params, NULL);
    SAME(true, 1, 1, 1, 32, 33, 1, 0, NULL, params, NULL);
    SAME(true, 1, 1, 1, 1, 1, 65, 0, NULL, params, NULL);
    SAME(true, 1, 1, 1, 1, 1, 1, 0, NULL, params, extra);
    SAME(true, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, unknown);
    FAILS(cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, (CUstream)0x3333, params, extra),
          CUDA_ERROR_INVALID_HANDLE);
    loopback_strict = true;
    SAME(false, 1, 1, 1, 1, 1, 1, 1 << 30, NULL, params, NULL);
    loopback_strict = false;
    FAILS(cuLaunchKernel((CUfunction)0x4444, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL),
          CUDA_ERROR_INVALID_HANDLE);
    FAILS(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
    FAILS(cuLaunchKernel(NULL, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_HANDLE);
    params[1] = NULL;
    FAILS(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
    size = REMOTE_PARAM_BYTES + 1;
    FAILS(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra), CUDA_ERROR_INVALID_VALUE);
    current = false;
    FAILS(cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_CONTEXT);
    current = true;
    OK(cuModuleUnload(module));
    unsigned long sent = loopback_sent;
    FAILS(cuModuleUnload(NULL), CUDA_ERROR_INVALID_HANDLE);
    FAILS(cuLibraryUnload(NULL), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(loopback_sent, sent);
}

static void check_attributes(void) {
    CUmodule module;
    CUfunction f;
    CUlaunchAttribute list[REMOTE_MOST_ATTRIBUTES + 1];
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, list, 1};

    memset(list, 0, sizeof list);
    OK(stub_cuModuleLoadData(&module, known));
    OK(cuModuleGetFunction(&f, module, "none"));
    OK(cuLaunchKernelEx(&config, f, NULL, NULL));
    CHECK(!seen.has_params && !seen.has_extra);
    config.numAttrs = REMOTE_MOST_ATTRIBUTES;
    OK(cuLaunchKernelEx(&config, f, NULL, NULL));
    config.numAttrs++;
    FAILS(cuLaunchKernelEx(&config, f, NULL, NULL), CUDA_ERROR_NOT_SUPPORTED);
    config.numAttrs = 1;
    list[0].id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
    FAILS(cuLaunchKernelEx(&config, f, NULL, NULL), CUDA_ERROR_NOT_SUPPORTED);
    list[0].id = (CUlaunchAttributeID)17;
    FAILS(cuLaunchKernelEx(&config, f, NULL, NULL), CUDA_ERROR_NOT_SUPPORTED);
    list[0].id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
    list[0].value.launchCompletionEvent.event = (CUevent)0x5555;
    FAILS(cuLaunchKernelEx(&config, f, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
    config.attrs = NULL;
    FAILS(cuLaunchKernelEx(&config, f, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuLaunchKernelEx(NULL, f, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    config.numAttrs = 0;
    OK(cuLaunchKernelEx(&config, f, pointers, NULL));
    CHECK(seen.has_params && seen.size == 0);
    OK(cuModuleUnload(module));
}

int main(void) {
    sim_machine machine;

    setting_describe(&machine);
    machine.cuda_version = 13040;
    setting_make(&machine);
    pair_load(SIMGPU_FOLDER "libcuda.so.1");
    remote_cuda_driver_find(&driver, pair_find);
    spy_begin(&spied, &driver);
    loopback_start(&spied, &nvml_mock);
    OK(driver.cuInit(0));
    OK(driver.cuCtxCreate_v2(&context, 0, 0));
    check_drawn(400);
    check_results();
    check_refusals();
    check_attributes();
    printf("%lu launches\n", seen.calls);
    return 0;
}
