/* Libraries: code independent of contexts, since CUDA 12.0. */
#include "simgpu/cuda/context.h"
#include "simgpu/cuda/driver.h"
#include "simgpu/cuda/ptx.h"
#include "simgpu/cuda/variables.h"

#include <stdlib.h>
#include <string.h>

/* A library in a context, since a kernel or a variable of it was needed there. */
struct presence {
    struct presence *next;
    CUcontext ctx;
    struct variables variables;
};

struct CUlib_st {
    struct handle handle;
    struct image image;
    struct presence *presences;
    struct CUlib_st *next;
};

/* Taken before the memory lock. */
static pthread_mutex_t libraries = PTHREAD_MUTEX_INITIALIZER;
static CUlibrary all;

static void leave(CUlibrary library, CUcontext ctx) {
    for (struct presence **at = &library->presences; *at;) {
        struct presence *presence = *at;
        if (ctx && presence->ctx != ctx) {
            at = &presence->next;
            continue;
        }
        *at = presence->next;
        variables_end(&presence->variables);
        free(presence);
    }
}

void libraries_end_context(CUcontext ctx) {
    pthread_mutex_lock(&libraries);
    for (CUlibrary library = all; library; library = library->next) {
        leave(library, ctx);
        for (CUfunction f = library->image.functions; f; f = f->next) {
            f->ctx = f->ctx == ctx ? NULL : f->ctx; /* another may get its address */
        }
    }
    pthread_mutex_unlock(&libraries);
}

/* The libraries lock. */
static CUresult find_presence(CUlibrary library, CUcontext ctx, struct presence **out) {
    struct presence *presence = library->presences;

    while (presence && presence->ctx != ctx) {
        presence = presence->next;
    }
    if (!presence) {
        presence = calloc(1, sizeof *presence);
        SG_REQUIRE(presence, CUDA_ERROR_OUT_OF_MEMORY);
        presence->ctx = ctx;
        CUresult result = variables_begin(&presence->variables, ctx, &library->image);
        if (result != CUDA_SUCCESS) {
            variables_end(&presence->variables);
            free(presence);
            return result;
        }
        presence->next = library->presences;
        library->presences = presence;
    }
    *out = presence;
    return CUDA_SUCCESS;
}

CUresult library_enter(CUlibrary library, CUcontext ctx) {
    struct presence *presence;

    pthread_mutex_lock(&libraries);
    CUresult result = find_presence(library, ctx, &presence);
    pthread_mutex_unlock(&libraries);
    return result;
}

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
    library->presences = NULL;
    pthread_mutex_lock(&libraries);
    library->next = all;
    all = library;
    pthread_mutex_unlock(&libraries);
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
    CUlibrary *at = &all;
    while (*at != library) {
        at = &(*at)->next;
    }
    *at = library->next;
    leave(library, NULL);
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
    struct presence *presence;

    SG_REQUIRE(name, CUDA_ERROR_INVALID_VALUE);
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(handle_given(library, HANDLE_LIBRARY), CUDA_ERROR_INVALID_HANDLE);
    SG_REQUIRE(address || bytes, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&libraries);
    CUresult result = find_presence(library, ctx, &presence);
    if (result == CUDA_SUCCESS &&
        !variables_find(&presence->variables, &library->image, name, address, bytes)) {
        result = CUDA_ERROR_NOT_FOUND;
    }
    pthread_mutex_unlock(&libraries);
    return result;
}

/* The function in the current context; here the same in all of them. */
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    SG_REQUIRE(function, CUDA_ERROR_INVALID_VALUE);
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(handle_given(kernel, HANDLE_KERNEL), CUDA_ERROR_INVALID_HANDLE);
    *function = (CUfunction)kernel;
    SG_TRY(library_enter((*function)->library, ctx));
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
