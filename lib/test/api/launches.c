/* Launches in all forms, with results that are known, and what ends a context. */
#include "test/api/api.h"

#define N 20000u

static float x[N], y[N], sum[N];

static void check_sum(CUdeviceptr c) {
    unsigned wrong = 0;

    OK(cuMemcpyDtoH_v2, sum, c, sizeof sum);
    for (unsigned i = 0; i < N; i++) {
        wrong += sum[i] != x[i] + y[i];
    }
    SAME(wrong, 0);
    OK(cuMemsetD8_v2, c, 0, sizeof sum);
}

static void check_forms(CUfunction add, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c, CUstream s) {
    unsigned n = N;
    void *each[] = {&a, &b, &c, &n};
    struct {
        CUdeviceptr a, b, c;
        unsigned n;
    } packed = {a, b, c, N};
    size_t bytes = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    CUlaunchConfig config = {.gridDimX = N / 256 + 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 256,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = s};

    OK(cuLaunchKernel, add, N / 256 + 1, 1, 1, 256, 1, 1, 0, s, each, NULL);
    OK(cuStreamSynchronize, s);
    check_sum(c);
    OK(cuLaunchKernel, add, N / 256 + 1, 1, 1, 256, 1, 1, 0, s, NULL, extra);
    OK(cuStreamSynchronize, s);
    check_sum(c);
    OK(cuLaunchKernelEx, &config, add, each, NULL);
    OK(cuStreamSynchronize, s);
    check_sum(c);
    OK(cuLaunchKernelEx, &config, add, NULL, extra);
    OK(cuStreamSynchronize, s);
    check_sum(c);
    OK(cuLaunchCooperativeKernel, add, 20, 1, 1, 1024, 1, 1, 0, s, each);
    OK(cuStreamSynchronize, s);
    check_sum(c);
    /* Parameters are copied by the call. */
    OK(cuLaunchKernel, add, N / 256 + 1, 1, 1, 256, 1, 1, 0, s, each, NULL);
    a = b = c = n = 0;
    OK(cuStreamSynchronize, s);
    check_sum(packed.c);
    (void)c;
}

static void check_refusals(CUfunction none) {
    static const struct {
        unsigned grid[3], block[3], shared;
    } wrong[] = {
        {{0, 1, 1}, {1, 1, 1}, 0},     {{1, 0, 1}, {1, 1, 1}, 0},
        {{1, 1, 0}, {1, 1, 1}, 0},     {{1, 1, 1}, {0, 1, 1}, 0},
        {{1, 1, 1}, {1, 0, 1}, 0},     {{1, 1, 1}, {1, 1, 0}, 0},
        {{1, 1, 1}, {1025, 1, 1}, 0},  {{1, 1, 1}, {1024, 2, 1}, 0},
        {{1, 1, 1}, {1, 1, 65}, 0},    {{1, 65536, 1}, {1, 1, 1}, 0},
        {{1, 1, 65536}, {1, 1, 1}, 0}, {{1, 1, 1}, {1, 1, 1}, 1u << 30},
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        INVALID(cuLaunchKernel, none, wrong[i].grid[0], wrong[i].grid[1], wrong[i].grid[2],
                wrong[i].block[0], wrong[i].block[1], wrong[i].block[2], wrong[i].shared, NULL,
                NULL, NULL);
        OK(cuCtxSynchronize);
    }
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel, NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    ANSWERS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, cuLaunchCooperativeKernel, none, 1000000, 1, 1,
            256, 1, 1, 0, NULL, NULL);
    INVALID(cuLaunchKernelEx, NULL, none, NULL, NULL);
}

void api_case_launches(void) {
    CUdeviceptr a = 0, b = 0, c = 0;
    CUstream s = NULL;

    api_begin();
    CUfunction add = api_function("divvy_vecadd"), none = api_function("none");
    for (unsigned i = 0; i < N; i++) {
        x[i] = (float)i;
        y[i] = 0.5f * (float)(i % 77);
    }
    OK(cuMemAlloc_v2, &a, sizeof x);
    OK(cuMemAlloc_v2, &b, sizeof x);
    OK(cuMemAlloc_v2, &c, sizeof x);
    OK(cuMemcpyHtoD_v2, a, x, sizeof x);
    OK(cuMemcpyHtoD_v2, b, y, sizeof y);
    OK(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    check_forms(add, a, b, c, NULL);
    check_forms(add, a, b, c, s);
    check_forms(add, a, b, c, CU_STREAM_PER_THREAD);
    static const unsigned blocks[][3] = {{1, 1, 1},    {32, 1, 1},   {8, 8, 8},
                                         {1024, 1, 1}, {1, 1024, 1}, {1, 1, 64}};
    for (size_t i = 0; i < COUNT(blocks); i++) {
        OK(cuLaunchKernel, none, 2, 3, 4, blocks[i][0], blocks[i][1], blocks[i][2], 0, s, NULL,
           NULL);
    }
    OK(cuLaunchKernel, none, 1, 1, 1, 1, 1, 1, 48 * 1024, s, NULL, NULL);
    OK(cuStreamSynchronize, s);
    for (uint32_t i = 1; i < 20; i++) {
        SAME(api_fill(c, i, 100 * i, s), CUDA_SUCCESS);
        OK(cuStreamSynchronize, s);
        SAME(api_word(c + 400 * i - 4), i);
        TRUE(api_word(c + 400 * i) == 0);
        OK(cuMemsetD8_v2, c, 0, sizeof x);
    }
    check_refusals(none);
}

/* A kernel that reaches for what is not there ends its context: every call says so from then on. */
void api_case_faults(void) {
    CUcontext ctx = api_begin(), again = NULL;
    CUdeviceptr a = 0, b = 0;
    CUstream s = NULL;
    CUevent e = NULL;
    unsigned char bytes[4];

    OK(cuMemAlloc_v2, &a, 64);
    OK(cuStreamCreate, &s, 0);
    OK(cuEventCreate, &e, 0);
    SAME(api_fill(ABSENT, 1, 4, s), CUDA_SUCCESS);
    ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize, s);
    ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize);
    ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2, &b, 64);
    ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemcpyDtoH_v2, bytes, a, 4);
    ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery, s);
    ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventSynchronize, e);
    OK(cuCtxDestroy_v2, ctx);
    OK(cuDevicePrimaryCtxRetain, &again, 0);
    OK(cuCtxSetCurrent, again);
    OK(cuMemAlloc_v2, &b, 64);
    OK(cuMemsetD8_v2, b, 1, 64);
    SAME(api_word(b), 0x01010101);
}
