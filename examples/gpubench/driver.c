#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct driver driver;

#define HEADER ".version 6.0\n.target sm_50\n.address_size 64\n"
#define BUSY                                                                                       \
    "(.param .u64 ns) {\n"                                                                         \
    ".reg .u64 %t<5>; .reg .pred %p;\n"                                                            \
    "ld.param.u64 %t1, [ns]; mov.u64 %t2, %globaltimer;\n"                                         \
    "again: mov.u64 %t3, %globaltimer; sub.u64 %t4, %t3, %t2;\n"                                   \
    "setp.lt.u64 %p, %t4, %t1; @%p bra again; ret; }\n"

/*
 * PTX text for a real GPU, which compiles it when the module is loaded; the simulated driver knows
 * all but divvy_loop by name. %globaltimer is the GPU's wall clock in nanoseconds. The volatile
 * store keeps the compiler from leaving divvy_loop's loop out; a mere reading of %clock, whose
 * value nobody uses, does not (ptxas 12.4).
 */
static const char kernel_text[] = HEADER
    ".visible .entry divvy_busy_ns" BUSY
    ".visible .entry divvy_await(.param .u64 p, .param .u32 value) {\n"
    ".reg .u64 %d<2>; .reg .u32 %r<3>; .reg .pred %p;\n"
    "ld.param.u64 %d1, [p]; ld.param.u32 %r1, [value];\n"
    "again: ld.volatile.global.u32 %r2, [%d1];\n"
    "setp.ne.u32 %p, %r2, %r1; @%p bra again; ret; }\n"
    ".visible .entry divvy_loop(.param .u64 turns) {\n"
    ".shared .u32 turn; .reg .u64 %t<2>; .reg .u32 %r<2>; .reg .pred %p;\n"
    "ld.param.u64 %t1, [turns];\n"
    "again: setp.eq.u64 %p, %t1, 0; @%p bra done;\n"
    "cvt.u32.u64 %r1, %t1; st.volatile.shared.u32 [turn], %r1;\n"
    "sub.u64 %t1, %t1, 1; bra again;\ndone: ret; }\n"
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
    "shl.b64 %d4, %d3, 2; add.u64 %d5, %d1, %d4; st.global.u32 [%d5], %r1;\ndone: ret; }\n";

const char *result_name(CUresult result) {
    const char *name = NULL;
    if (driver.cuGetErrorName == NULL || driver.cuGetErrorName(result, &name) != CUDA_SUCCESS ||
        name == NULL) {
        return "CUDA_ERROR_UNKNOWN";
    }
    return name;
}

int driver_open(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "gpubench: open the CUDA driver: %s\n", dlerror());
        return 0;
    }
    /* POSIX gives function pointers through void *; the union spells that conversion without a
     * cast. */
    union {
        void *object;
        void (*function)(void);
    } symbol;
#define GPUBENCH_RESOLVE(name, parameters)                                                         \
    symbol.object = dlsym(library, #name);                                                         \
    if (symbol.object == NULL) {                                                                   \
        fprintf(stderr, "gpubench: the driver has no %s\n", #name);                                \
        return 0;                                                                                  \
    }                                                                                              \
    driver.name = (CUresult(*) parameters)symbol.function;
    GPUBENCH_FUNCTIONS(GPUBENCH_RESOLVE)
#undef GPUBENCH_RESOLVE
    return 1;
}

CUresult driver_start(int ordinal) {
    CUresult result = driver.cuInit(0);
    CUdevice device;
    if (result == CUDA_SUCCESS) {
        result = driver.cuDeviceGet(&device, ordinal);
    }
    CUcontext context = NULL;
    if (result == CUDA_SUCCESS) {
        result = driver.cuDevicePrimaryCtxRetain(&context, device);
    }
    return result == CUDA_SUCCESS ? driver.cuCtxSetCurrent(context) : result;
}

CUresult kernels_load(struct kernels *kernels) {
    CUmodule module;
    CUresult result = driver.cuModuleLoadData(&module, kernel_text);
    if (result == CUDA_SUCCESS) {
        result = driver.cuModuleGetFunction(&kernels->busy, module, "divvy_busy_ns");
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuModuleGetFunction(&kernels->loop, module, "divvy_loop");
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuModuleGetFunction(&kernels->vecadd, module, "divvy_vecadd");
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuModuleGetFunction(&kernels->fill, module, "divvy_fill");
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuModuleGetFunction(&kernels->await, module, "divvy_await");
    }
    return result;
}

/* The text of so many kernels, in memory of its own; NULL if there is none. */
static char *different_text(unsigned count) {
    size_t each = sizeof ".visible .entry divvy_busy_ns_4294967295" BUSY, used = sizeof HEADER - 1;
    char *text = malloc(sizeof HEADER + each * count);
    if (text != NULL) {
        memcpy(text, HEADER, sizeof HEADER);
        for (unsigned i = 0; i < count; i++) {
            used += (size_t)sprintf(text + used, ".visible .entry divvy_busy_ns_%u%s", i, BUSY);
        }
    }
    return text;
}

CUresult kernels_different(CUfunction *kernels, unsigned count, int lazily) {
    CUmodule module = NULL;
    CUlibrary library = NULL;
    char *text = different_text(count), name[32];
    if (text == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = lazily
                          ? driver.cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0)
                          : driver.cuModuleLoadData(&module, text);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        CUkernel kernel = NULL;
        snprintf(name, sizeof name, "divvy_busy_ns_%u", i);
        if (lazily) {
            result = driver.cuLibraryGetKernel(&kernel, library, name);
            kernels[i] = (CUfunction)kernel;
        } else {
            result = driver.cuModuleGetFunction(&kernels[i], module, name);
        }
    }
    free(text);
    return result;
}

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
