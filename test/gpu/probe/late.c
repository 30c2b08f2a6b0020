/*
 * The command `late`: memory that no call announces. A module of many kernels is loaded, its
 * functions are found, each is launched, and then one that needs local memory. After each step it
 * prints what the GPU has free by cuMemGetInfo; in a share, what the share has free. Then it holds
 * everything until its input ends, so that others can look at it from outside.
 */
#include "probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KERNELS = 384,
    OPERATIONS = 768, /* of each kernel: 16 bytes of code each, so 5 MB in all */
    LOCAL_BYTES = 2048,
    LINE = 64,
};

#define HEADER ".version 6.0\n.target sm_50\n.address_size 64\n"

/* Kernels of straight code on which no two agree, so that none is dropped or shared, and one whose
 * threads each have an array in local memory: the driver keeps room for it for all threads that fit
 * on the GPU at once, from its first launch on. */
static char *write_text(void) {
    size_t room = sizeof HEADER + (size_t)KERNELS * (OPERATIONS + 8) * LINE + 1024, used = 0;
    char *text = malloc(room);
    if (text == NULL) {
        return NULL;
    }
    used += (size_t)snprintf(text, room, "%s", HEADER);
    for (unsigned k = 0; k < KERNELS; k++) {
        used += (size_t)snprintf(text + used, room - used,
                                 ".visible .entry divvy_late_%u(.param .u64 p) {\n"
                                 ".reg .u64 %%d; .reg .u32 %%r;\n"
                                 "ld.param.u64 %%d, [p]; ld.global.u32 %%r, [%%d];\n",
                                 k);
        for (unsigned i = 0; i < OPERATIONS; i++) {
            used += (size_t)snprintf(text + used, room - used, "%s %%r, %%r, %u;\n",
                                     i % 2 != 0 ? "xor.b32" : "add.u32", k * OPERATIONS + i + 3);
        }
        used += (size_t)snprintf(text + used, room - used, "st.global.u32 [%%d], %%r; ret; }\n");
    }
    (void)snprintf(text + used, room - used,
                   ".visible .entry divvy_local(.param .u64 p) {\n"
                   ".local .align 8 .b8 room[%d]; .reg .u64 %%d<4>; .reg .u32 %%r<3>;\n"
                   "ld.param.u64 %%d0, [p]; ld.global.u32 %%r0, [%%d0]; and.b32 %%r1, %%r0, 255;\n"
                   "cvt.u64.u32 %%d1, %%r1; mov.u64 %%d2, room; add.u64 %%d3, %%d2, %%d1;\n"
                   "st.local.u8 [%%d3], %%r0; ld.local.u8 %%r2, [%%d3+64];\n"
                   "st.global.u32 [%%d0], %%r2; ret; }\n",
                   LOCAL_BYTES);
    return text;
}

static CUresult tell(const char *step, uint64_t begin) {
    size_t free_bytes = 0, total = 0;
    CUresult result = cuda.cuCtxSynchronize();
    uint64_t taken = now_ns() - begin;
    if (result == CUDA_SUCCESS) {
        result = cuda.cuMemGetInfo_v2(&free_bytes, &total);
    }
    printf("{\"step\":\"%s\",\"result\":\"%s\",\"free\":%zu,\"total\":%zu,\"ms\":%.1f}\n", step,
           result_name(result), free_bytes, total, (double)taken / 1e6);
    return result;
}

struct code {
    CUmodule module;
    CUfunction kernels[KERNELS], local;
    CUdeviceptr word;
};

static CUresult find(struct code *code) {
    CUresult result = cuda.cuModuleGetFunction(&code->local, code->module, "divvy_local");
    for (unsigned k = 0; k < KERNELS && result == CUDA_SUCCESS; k++) {
        char name[LINE];
        snprintf(name, sizeof name, "divvy_late_%u", k);
        result = cuda.cuModuleGetFunction(&code->kernels[k], code->module, name);
    }
    return result;
}

static CUresult launch(const struct code *code, CUfunction kernel) {
    CUdeviceptr word = code->word;
    void *parameters[] = {&word};
    return cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

static CUresult load_and_launch(struct code *code, const char *text) {
    uint64_t begin = now_ns();
    CUresult result = cuda.cuModuleLoadData(&code->module, text);
    if (result == CUDA_SUCCESS) {
        result = tell("module", begin);
    }
    begin = now_ns();
    if (result == CUDA_SUCCESS) {
        result = find(code);
    }
    if (result == CUDA_SUCCESS) {
        result = tell("functions", begin);
    }
    begin = now_ns();
    for (unsigned k = 0; k < KERNELS && result == CUDA_SUCCESS; k++) {
        result = launch(code, code->kernels[k]);
    }
    if (result == CUDA_SUCCESS) {
        result = tell("launches", begin);
    }
    begin = now_ns();
    if (result == CUDA_SUCCESS) {
        result = launch(code, code->local);
    }
    return result == CUDA_SUCCESS ? tell("local", begin) : result;
}

int command_code(void) {
    char *text = write_text();
    if (text == NULL) {
        return 1;
    }
    fputs(text, stdout);
    free(text);
    return 0;
}

int command_late(void) {
    static struct code code;
    CUdevice device;
    CUmoduleLoadingMode mode = 0;
    char *text = write_text();
    if (text == NULL || !open_cuda()) {
        free(text);
        return 3;
    }
    uint64_t begin = now_ns();
    CUresult result = start_cuda(&device);
    if (result == CUDA_SUCCESS) {
        result = cuda.cuMemAlloc_v2(&code.word, sizeof(unsigned));
    }
    if (result == CUDA_SUCCESS) {
        result = tell("context", begin);
    }
    if (result == CUDA_SUCCESS && cuda.cuModuleGetLoadingMode != NULL) {
        (void)cuda.cuModuleGetLoadingMode(&mode);
    }
    if (result == CUDA_SUCCESS) {
        result = load_and_launch(&code, text);
    }
    printf("{\"command\":\"late\",\"result\":\"%s\",\"mode\":\"%s\"}\n", result_name(result),
           mode == CU_MODULE_LAZY_LOADING    ? "lazy"
           : mode == CU_MODULE_EAGER_LOADING ? "eager"
                                             : "unknown");
    await_end_of_input();
    free(text);
    return result == CUDA_SUCCESS ? 0 : 1;
}
