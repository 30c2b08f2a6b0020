/* Libraries: code independent of contexts, since CUDA 12.0. */
#include "simgpu/cuda/driver.h"
#include "simgpu/cuda/ptx.h"

#include <string.h>

struct CUlib_st {
    struct handle handle;
    struct image image;
};

static pthread_mutex_t libraries = PTHREAD_MUTEX_INITIALIZER;

static CUresult begin(CUlibrary *out, const void *code, const char *path) {
    struct image image;

    SG_READY();
    SG_REQUIRE(out, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(path ? image_load_file(&image, path) : image_load(&image, code));
    CUlibrary library = handle_new(HANDLE_LIBRARY, sizeof *library);
    if (!library) {
        image_end(&image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    library->image = image;
    *out = library;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit,
                           void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                           void **values, unsigned int count) {
    SG_REQUIRE(library && code, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE((jit_count == 0 || (jit && jit_values)) && (count == 0 || (options && values)),
               CUDA_ERROR_INVALID_VALUE);
    return begin(library, code, NULL);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit,
                               void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                               void **values, unsigned int count) {
    SG_REQUIRE(path && (jit_count == 0 || (jit && jit_values)) &&
                   (count == 0 || (options && values)),
               CUDA_ERROR_INVALID_VALUE);
    return begin(library, NULL, path);
}

CUresult cuLibraryUnload(CUlibrary library) {
    SG_REQUIRE(library, CUDA_ERROR_INVALID_HANDLE);
    SG_READY();
    SG_REQUIRE(handle_given(library, HANDLE_LIBRARY), CUDA_ERROR_INVALID_HANDLE);
    pthread_mutex_lock(&libraries);
    image_end(&library->image);
    handle_end(library, HANDLE_LIBRARY);
    pthread_mutex_unlock(&libraries);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    SG_REQUIRE(kernel && name, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    SG_REQUIRE(handle_given(library, HANDLE_LIBRARY), CUDA_ERROR_INVALID_HANDLE);
    SG_REQUIRE(*name, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&libraries);
    CUfunction found = image_function(&library->image, name, HANDLE_KERNEL);
    if (found) {
        found->library = library;
        *kernel = (CUkernel)found;
    }
    pthread_mutex_unlock(&libraries);
    return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary library) {
    size_t length;

    SG_REQUIRE(count && library, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    SG_REQUIRE(handle_given(library, HANDLE_LIBRARY), CUDA_ERROR_INVALID_HANDLE);
    *count = 0;
    for (const char *at = NULL; (at = ptx_next_kernel(library->image.ptx, at, &length)) != NULL;) {
        ++*count;
    }
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                            const char *name) {
    SG_REQUIRE(name, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    SG_REQUIRE(handle_given(library, HANDLE_LIBRARY), CUDA_ERROR_INVALID_HANDLE);
    SG_REQUIRE(address || bytes, CUDA_ERROR_INVALID_VALUE);
    return CUDA_ERROR_NOT_FOUND;
}

/* The function in the current context; here the same in all of them. */
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    SG_REQUIRE(function, CUDA_ERROR_INVALID_VALUE);
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(handle_given(kernel, HANDLE_KERNEL), CUDA_ERROR_INVALID_HANDLE);
    *function = (CUfunction)kernel;
    return function_load(*function, ctx);
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel) {
    SG_REQUIRE(library, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    SG_REQUIRE(handle_given(kernel, HANDLE_KERNEL), CUDA_ERROR_INVALID_HANDLE);
    *library = ((CUfunction)kernel)->library;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **name, CUkernel kernel) {
    SG_REQUIRE(name && kernel, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    SG_REQUIRE(handle_given(kernel, HANDLE_KERNEL), CUDA_ERROR_INVALID_HANDLE);
    *name = ((CUfunction)kernel)->name;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *bytes) {
    return cuFuncGetParamInfo((CUfunction)kernel, index, offset, bytes);
}

CUresult cuKernelGetParamCount(CUkernel kernel, size_t *count) {
    return cuFuncGetParamCount((CUfunction)kernel, count);
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                              CUdevice device) {
    SG_REQUIRE(kernel, CUDA_ERROR_INVALID_HANDLE);
    SG_READY();
    SG_REQUIRE(sg_device(device), CUDA_ERROR_INVALID_DEVICE);
    return cuFuncGetAttribute(value, attribute, (CUfunction)kernel);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                              CUdevice device) {
    SG_REQUIRE(kernel, CUDA_ERROR_INVALID_HANDLE);
    SG_READY();
    SG_REQUIRE(sg_device(device), CUDA_ERROR_INVALID_DEVICE);
    return cuFuncSetAttribute((CUfunction)kernel, attribute, value);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
    SG_REQUIRE(kernel, CUDA_ERROR_INVALID_HANDLE);
    SG_READY();
    SG_REQUIRE(sg_device(device), CUDA_ERROR_INVALID_DEVICE);
    return cuFuncSetCacheConfig((CUfunction)kernel, config);
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count, CUlibrary library) {
    char name[512];
    size_t length;

    SG_REQUIRE(kernels && library, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    SG_REQUIRE(handle_given(library, HANDLE_LIBRARY), CUDA_ERROR_INVALID_HANDLE);
    for (const char *at = NULL;
         count > 0 && (at = ptx_next_kernel(library->image.ptx, at, &length)) != NULL; count--) {
        SG_REQUIRE(length < sizeof name, CUDA_ERROR_INVALID_IMAGE);
        memcpy(name, at, length);
        name[length] = '\0';
        SG_TRY(cuLibraryGetKernel(kernels++, library, name));
    }
    return CUDA_SUCCESS;
}
