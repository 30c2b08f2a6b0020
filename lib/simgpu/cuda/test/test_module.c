/* Variables of modules, and parameters of kernels, as PTX declares them. */
#include "simgpu/cuda/test/cuda.h"

#include <string.h>

static const char ptx[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    "// .global .u32 commented;\n"
    "/* .global .u32 commented; */\n"
    ".visible .const .align 4 .b8 generic_constant[65536];\n"
    ".visible .global .align 8 .u64 table[2] = {0x1122334455667788, -1};\n"
    ".global .v4 .f32 lanes;\n"
    ".global .f64 half = 0d3FE0000000000000;\n"
    ".global .f32 one = 0f3F800000;\n"
    ".global .attribute(.managed) .s16 pairs[2][2] = {{1, 2}, {3}};\n"
    ".global .b8 text[] = {72, 105, 0};\n"
    ".extern .global .u32 outside[];\n"
    ".global .b8 sums[2 + 3 * 4][(1 << 4) / 8];\n"
    ".global .b8 chosen[(7 > 0x8 ? 1 : 0b101) + WARP_SZ % 5 - -1U];\n"
    ".global .b8 nothing[1 / 0];\n"
    ".global .u64 pointer = generic_constant;\n"
    ".visible .entry kernel(.param .u64 .ptr .global .align 16 a, .param .u8 b,\n"
    "  .param .align 16 .b8 c[20], .param .f64 d) { ld.global.u32 %r1, [table]; ret; }\n"
    ".entry none() { ret; }\n"
    ".entry divvy_fill(.param .u64 a) { ret; }\n";

static CUdeviceptr variable(CUmodule module, const char *name, size_t bytes) {
    CUdeviceptr address = 0;
    size_t found = 0;

    OK(cuModuleGetGlobal_v2(&address, &found, module, name));
    CHECK_EQUAL(found, bytes);
    CHECK(address != 0);
    return address;
}

static void check_contents(CUmodule module) {
    uint64_t table[2], pointer = 1;
    int16_t pairs[4];
    double half;
    float one, lanes[4];
    char text[3];

    OK(cuMemcpyDtoH_v2(table, variable(module, "table", 16), 16));
    CHECK(table[0] == 0x1122334455667788 && table[1] == UINT64_MAX);
    OK(cuMemcpyDtoH_v2(&half, variable(module, "half", 8), 8));
    CHECK(half == 0.5);
    OK(cuMemcpyDtoH_v2(&one, variable(module, "one", 4), 4));
    CHECK(one == 1.0f);
    OK(cuMemcpyDtoH_v2(pairs, variable(module, "pairs", 8), 8));
    CHECK(pairs[0] == 1 && pairs[1] == 2 && pairs[2] == 3 && pairs[3] == 0);
    OK(cuMemcpyDtoH_v2(text, variable(module, "text", 3), 3));
    CHECK(strcmp(text, "Hi") == 0);
    OK(cuMemcpyDtoH_v2(lanes, variable(module, "lanes", 16), 16));
    CHECK(lanes[3] == 0);
    variable(module, "sums", 28);
    variable(module, "chosen", 8);
    /* Addresses of others are not worked out. */
    OK(cuMemcpyDtoH_v2(&pointer, variable(module, "pointer", 8), 8));
    CHECK_EQUAL(pointer, 0);
}

/* As hashcat does: it copies what its kernels read into a constant. */
static void check_constant(CUmodule module) {
    CUdeviceptr constant = variable(module, "generic_constant", 65536), from, again;
    static unsigned char bytes[65536];

    CHECK_EQUAL(constant % 4, 0);
    OK(cuMemAlloc_v2(&from, sizeof bytes));
    OK(cuMemsetD8_v2(from, 7, sizeof bytes));
    OK(cuMemcpyDtoDAsync_v2(constant, from, sizeof bytes, NULL));
    OK(cuMemcpyDtoH_v2(bytes, constant, sizeof bytes));
    CHECK(bytes[0] == 7 && bytes[65535] == 7);
    FAILS(cuMemFree_v2(constant), CUDA_ERROR_INVALID_VALUE);
    OK(cuModuleGetGlobal_v2(&again, NULL, module, "generic_constant"));
    CHECK_EQUAL(again, constant);
    OK(cuMemFree_v2(from));
}

static void check_refusals(CUmodule module) {
    CUdeviceptr address;
    size_t bytes;

    FAILS(cuModuleGetGlobal_v2(&address, &bytes, module, "commented"), CUDA_ERROR_NOT_FOUND);
    FAILS(cuModuleGetGlobal_v2(&address, &bytes, module, "outside"), CUDA_ERROR_NOT_FOUND);
    FAILS(cuModuleGetGlobal_v2(&address, &bytes, module, "nothing"), CUDA_ERROR_NOT_FOUND);
    FAILS(cuModuleGetGlobal_v2(&address, &bytes, module, "tab"), CUDA_ERROR_NOT_FOUND);
    FAILS(cuModuleGetGlobal_v2(&address, &bytes, module, "a"), CUDA_ERROR_NOT_FOUND);
    FAILS(cuModuleGetGlobal_v2(NULL, NULL, module, "table"), CUDA_ERROR_INVALID_VALUE);
}

static void param(CUfunction f, size_t index, size_t at, size_t bytes) {
    size_t offset = 99, size = 99;

    OK(cuFuncGetParamInfo(f, index, &offset, &size));
    CHECK_EQUAL(offset, at);
    CHECK_EQUAL(size, bytes);
}

static void param_count(CUfunction f, size_t expected) {
    size_t count = 99;

    OK(cuFuncGetParamCount(f, &count));
    CHECK_EQUAL(count, expected);
    FAILS(cuFuncGetParamCount(f, NULL), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuFuncGetParamCount(NULL, &count), CUDA_ERROR_INVALID_VALUE);
}

/* Binary code is not read: what its kernels take is known of those alone that really happen. */
static void check_binary(void) {
    static const unsigned char fat[16] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 1};
    CUmodule module;
    CUfunction f;
    size_t offset;

    OK(cuModuleLoadData(&module, fat));
    OK(cuModuleGetFunction(&f, module, "any"));
    FAILS(cuFuncGetParamInfo(f, 0, &offset, NULL), CUDA_ERROR_NOT_SUPPORTED);
    FAILS(cuFuncGetParamCount(f, &offset), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuModuleGetFunction(&f, module, "divvy_vecadd"));
    param(f, 3, 24, 4);
    param_count(f, 4);
    OK(cuModuleUnload(module));
}

static void check_params(CUmodule module) {
    CUlibrary library;
    CUkernel kernel;
    CUfunction f;
    size_t offset;

    OK(cuModuleGetFunction(&f, module, "kernel"));
    param(f, 0, 0, 8);
    param(f, 1, 8, 1);
    param(f, 2, 16, 20);
    param(f, 3, 40, 8);
    FAILS(cuFuncGetParamInfo(f, 4, &offset, NULL), CUDA_ERROR_INVALID_VALUE);
    param_count(f, 4);
    FAILS(cuFuncGetParamInfo(f, 0, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuFuncGetParamInfo(NULL, 0, &offset, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuModuleGetFunction(&f, module, "none"));
    param_count(f, 0);
    FAILS(cuFuncGetParamInfo(f, 0, &offset, NULL), CUDA_ERROR_INVALID_VALUE);
    /* One that really happens takes what it takes. */
    OK(cuModuleGetFunction(&f, module, "divvy_fill"));
    param(f, 0, 0, 8);
    param(f, 1, 8, 4);
    param(f, 2, 16, 8);
    param_count(f, 3);
    FAILS(cuFuncGetParamInfo(f, 3, &offset, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "kernel"));
    OK(cuKernelGetParamInfo(kernel, 1, &offset, NULL));
    CHECK_EQUAL(offset, 8);
    OK(cuKernelGetParamCount(kernel, &offset));
    CHECK_EQUAL(offset, 4);
    OK(cuLibraryUnload(library));
}

/* Variables that do not fit are refused with their module, and no memory is left taken. */
static void check_size(void) {
    uint64_t before = cuda_true_all();
    CUmodule module;

    FAILS(cuModuleLoadData(&module, ".version 8.0\n.global .b8 big[1099511627776];"),
          CUDA_ERROR_OUT_OF_MEMORY);
    FAILS(cuModuleLoadData(&module, ".version 8.0\n.global .b8 a[549755813888];\n"
                                    ".global .b8 b[549755813889];"),
          CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuda_true_all(), before);
}

int main(void) {
    CUmodule module, other;
    CUcontext ctx;

    cuda_start(NULL);
    uint64_t before = cuda_true_all();
    OK(cuModuleLoadData(&module, ptx));
    CHECK_EQUAL(cuda_true_all(), before + 2 * MIB);
    CHECK_EQUAL(cuda_true(SG_LINEAR), 0);
    check_contents(module);
    check_constant(module);
    check_refusals(module);
    check_params(module);
    check_binary();
    OK(cuModuleLoadData(&other, ptx));
    CHECK(variable(other, "half", 8) != variable(module, "half", 8));
    OK(cuModuleUnload(other));
    OK(cuModuleUnload(module));
    CHECK_EQUAL(cuda_true_all(), before);
    check_size();
    /* A context takes its modules with it. */
    OK(cuCtxCreate_v2(&ctx, 0, 0));
    OK(cuModuleLoadData(&module, ptx));
    OK(cuCtxDestroy_v2(ctx));
    CHECK_EQUAL(cuda_true_all(), before);
    return 0;
}
