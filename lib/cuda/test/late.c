/* A program whose overhead grows without a call that tells of it: it launches one kernel after
 * another of a library, each for the first time, and then one that needs a larger stack. It says so
 * when it is done, and stays; with a third argument it frees and allocates all the time then: late
 * KERNELS MILLISECONDS [busy]. Not a test. */
#define _GNU_SOURCE
#include "abi/generated/cuda_functions.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ALLOCATED ((size_t)64 << 20)

static void *library;

static void *find(const char *name) {
    void *function = dlsym(library, name);
    if (function == NULL) {
        fprintf(stderr, "no %s\n", name);
        exit(1);
    }
    return function;
}
#define CU(fn) (__extension__(__typeof__(&fn)) find(#fn))

static void must(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s: %u\n", what, (unsigned)result);
        exit(1);
    }
}

static void launch(CUlibrary code, const char *name) {
    CUkernel kernel;
    must(CU(cuLibraryGetKernel)(&kernel, code, name), name);
    must(CU(cuLaunchKernel)((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), name);
}

/* PTX with the kernels k0, k1 and so on, and one with 2 KiB of local memory for each thread. */
static char *text(unsigned kernels) {
    size_t room = 64 * (kernels + 4), used;
    char *ptx = calloc(1, room);
    if (ptx == NULL) {
        exit(1);
    }
    used = (size_t)snprintf(ptx, room, ".version 8.0\n.target sm_80\n.address_size 64\n");
    for (unsigned i = 0; i < kernels; i++) {
        used += (size_t)snprintf(ptx + used, room - used, ".visible .entry k%u() { ret; }\n", i);
    }
    snprintf(ptx + used, room - used,
             ".visible .entry deep() {\n.local .align 16 .b8 depot[2048];\nret; }\n");
    return ptx;
}

int main(int count, char **arguments) {
    unsigned kernels = count > 2 ? (unsigned)atoi(arguments[1]) : 0;
    long milliseconds = count > 2 ? atol(arguments[2]) : 0;
    const struct timespec rest = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    CUcontext context;
    CUdeviceptr address;
    CUlibrary code;
    char name[16];

    if (kernels == 0 || (library = dlopen("libcuda.so.1", RTLD_NOW)) == NULL) {
        fprintf(stderr, "usage: late KERNELS MILLISECONDS, with a driver\n");
        return 2;
    }
    must(CU(cuInit)(0), "cuInit");
    must(CU(cuDevicePrimaryCtxRetain)(&context, 0), "cuDevicePrimaryCtxRetain");
    must(CU(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
    must(CU(cuMemAlloc_v2)(&address, ALLOCATED), "cuMemAlloc_v2");
    char *ptx = text(kernels);
    must(CU(cuLibraryLoadData)(&code, ptx, NULL, NULL, 0, NULL, NULL, 0), "cuLibraryLoadData");
    for (unsigned i = 0; i < kernels; i++) {
        snprintf(name, sizeof name, "k%u", i);
        launch(code, name);
        nanosleep(&rest, NULL);
    }
    launch(code, "deep");
    printf("{\"command\":\"late\",\"phase\":\"grown\"}\n");
    fflush(stdout);
    free(ptx);
    if (count <= 3) {
        pause();
    }
    for (const struct timespec step = {.tv_nsec = 5000000};; nanosleep(&step, NULL)) {
        must(CU(cuMemFree_v2)(address), "cuMemFree_v2");
        nanosleep(&step, NULL);
        must(CU(cuMemAlloc_v2)(&address, ALLOCATED), "cuMemAlloc_v2");
    }
}
