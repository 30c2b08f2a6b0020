/* A program that takes all the memory it gets, loading the driver in the way that its argument
 * names, and says how many MiB it was. It knows nothing of Divvy. */
#define _GNU_SOURCE
#include "abi/generated/cuda_functions.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP ((size_t)2 << 20)

/* The functions as one way of loading gives them. */
struct driver {
    CUresult (*init)(unsigned);
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    CUresult (*alloc)(CUdeviceptr *, size_t);
};

static void fail(const char *what, CUresult result) {
    fprintf(stderr, "%s: %u\n", what, (unsigned)result);
    exit(1);
}

static void find(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    if (found == NULL) {
        fail(name, CUDA_ERROR_NOT_FOUND);
    }
    *(void **)function = found;
}

static struct driver from(void *library) {
    struct driver driver;
    find(library, "cuInit", &driver.init);
    find(library, "cuCtxCreate_v2", &driver.create);
    find(library, "cuMemAlloc_v2", &driver.alloc);
    return driver;
}

static void *opened(void *library) {
    if (library == NULL) {
        fail(dlerror(), CUDA_ERROR_NOT_FOUND);
    }
    return library;
}

static void start(const struct driver *driver) {
    CUcontext context;
    CUresult result = driver->init(0);
    if (result == CUDA_SUCCESS) {
        result = driver->create(&context, 0, 0);
    }
    if (result != CUDA_SUCCESS) {
        fail("start", result);
    }
}

int main(int count, char **arguments) {
    const char *way = count > 1 ? arguments[1] : "link";
    struct driver drivers[2] = {{cuInit, cuCtxCreate_v2, cuMemAlloc_v2}};
    unsigned copies = 1, taken = 0;
    if (strcmp(way, "open") == 0) {
        drivers[0] = from(opened(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)));
    } else if (strcmp(way, "deepbind") == 0) {
        drivers[0] = from(opened(dlopen("libcuda.so.1", RTLD_NOW | RTLD_DEEPBIND)));
    } else if (strcmp(way, "next") == 0) {
        drivers[0] = from(RTLD_NEXT);
    } else if (strcmp(way, "default") == 0) {
        drivers[0] = from(RTLD_DEFAULT);
    } else if (strcmp(way, "copies") == 0) {
        drivers[0] = from(opened(dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW)));
        drivers[1] = from(opened(dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW)));
        copies = 2;
    }
    for (unsigned i = 0; i < copies; i++) {
        start(&drivers[i]);
    }
    for (unsigned refused = 0; refused < copies;) {
        CUdeviceptr address;
        CUresult result = drivers[taken % copies].alloc(&address, STEP);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            refused++;
            taken += refused < copies; /* let the other copy try */
            continue;
        }
        if (result != CUDA_SUCCESS) {
            fail("alloc", result);
        }
        taken++;
    }
    printf("%zu\n", (taken - (copies - 1)) * (STEP >> 20));
    return 0;
}
