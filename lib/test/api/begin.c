/* What the cases share. */
#define _GNU_SOURCE
#include "test/api/api.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char api_ptx[] =
    ".version 7.0\n.target sm_52\n.address_size 64\n"
    ".visible .global .align 8 .u64 table[2] = {11, 12};\n"
    ".visible .const .align 4 .b8 constant[4096];\n"
    ".visible .entry divvy_vecadd(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) {\n"
    ".reg .u64 %d<8>; .reg .u32 %r<6>; .reg .f32 %f<4>; .reg .pred %p;\n"
    "ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; ld.param.u64 %d3, [c]; ld.param.u32 %r1, [n];\n"
    "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
    "mad.lo.u32 %r5, %r2, %r3, %r4; setp.ge.u32 %p, %r5, %r1; @%p bra done;\n"
    "mul.wide.u32 %d4, %r5, 4; add.u64 %d5, %d1, %d4; add.u64 %d6, %d2, %d4; add.u64 %d7, %d3, "
    "%d4;\n"
    "ld.global.f32 %f1, [%d5]; ld.global.f32 %f2, [%d6]; add.f32 %f3, %f1, %f2;\n"
    "st.global.f32 [%d7], %f3;\ndone: ret; }\n"
    ".visible .entry divvy_fill(.param .u64 p, .param .u32 value, .param .u64 n) {\n"
    ".reg .u64 %d<6>; .reg .u32 %r<6>; .reg .pred %p;\n"
    "ld.param.u64 %d1, [p]; ld.param.u32 %r1, [value]; ld.param.u64 %d2, [n];\n"
    "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
    "mad.lo.u32 %r5, %r2, %r3, %r4; cvt.u64.u32 %d3, %r5; setp.ge.u64 %p, %d3, %d2; @%p bra done;\n"
    "shl.b64 %d4, %d3, 2; add.u64 %d5, %d1, %d4; st.global.u32 [%d5], %r1;\ndone: ret; }\n"
    ".visible .entry mixed(.param .u64 a, .param .u8 b, .param .align 16 .b8 c[20], .param .f64 "
    "d)\n"
    "{ ret; }\n"
    ".visible .entry none() { ret; }\n";

CUcontext api_begin(void) {
    CUcontext ctx = NULL;

    OK(cuInit, 0);
    OK(cuCtxCreate_v2, &ctx, 0, 0);
    TRUE(ctx != NULL);
    return ctx;
}

CUfunction api_function(const char *name) {
    static CUmodule module;
    CUfunction function = NULL;

    if (!module) {
        OK(cuModuleLoadData, &module, api_ptx);
    }
    OK(cuModuleGetFunction, &function, module, name);
    return function;
}

CUresult api_fill(CUdeviceptr to, uint32_t value, uint64_t words, CUstream stream) {
    static CUfunction fill;
    void *params[] = {&to, &value, &words};

    fill = fill ? fill : api_function("divvy_fill");
    return CU(cuLaunchKernel)(fill, (unsigned)(words / 128 + 1), 1, 1, 128, 1, 1, 0, stream, params,
                              NULL);
}

uint32_t api_word(CUdeviceptr address) {
    uint32_t word = 0x5a5a5a5a;

    OK(cuMemcpyDtoH_v2, &word, address, 4);
    return word;
}

bool api_is_filled(CUdeviceptr address, unsigned char byte, size_t bytes) {
    unsigned char *back = malloc(bytes);
    bool is = back && CU(cuMemcpyDtoH_v2)(back, address, bytes) == CUDA_SUCCESS;

    for (size_t i = 0; is && i < bytes; i++) {
        is = back[i] == byte;
    }
    free(back);
    return is;
}

void api_pattern(unsigned char *at, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(i * 7 + i / 251 + seed * 31);
    }
}

int api_child(int (*body)(void)) {
    int status;
    pid_t child = fork();

    if (child == 0) {
        _exit(body());
    }
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            return -1;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}
