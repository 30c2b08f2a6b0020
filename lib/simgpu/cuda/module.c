/* Modules: code within a context. */
#include "simgpu/cuda/driver.h"
#include "simgpu/cuda/ptx.h"
#include "simgpu/cuda/variables.h"

#include <stdlib.h>
#include <string.h>

struct CUmod_st {
    struct handle handle;
    CUcontext ctx;
    struct image image;
    struct variables variables;
    struct link of_context;
};

/* Taken before the memory lock. */
static pthread_mutex_t modules = PTHREAD_MUTEX_INITIALIZER;

static CUresult begin(CUcontext ctx, CUmodule *out, const void *code, const char *path) {
    struct image image;

    SG_REQUIRE(out, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(path ? image_load_file(&image, path) : image_load(&image, code));
    CUmodule module = handle_new(HANDLE_MODULE, sizeof *module);
    if (!module) {
        image_end(&image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    module->ctx = ctx;
    module->image = image;
    CUresult result = variables_begin(&module->variables, ctx, &module->image);
    if (result != CUDA_SUCCESS) {
        variables_end(&module->variables);
        image_end(&module->image);
        handle_end(module, HANDLE_MODULE);
        return result;
    }
    pthread_mutex_lock(&modules);
    link_add(&ctx->modules, &module->of_context);
    pthread_mutex_unlock(&modules);
    *out = module;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoad(CUmodule *module, const char *path) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(path, CUDA_ERROR_INVALID_VALUE);
    return begin(ctx, module, NULL, path);
}

CUresult cuModuleLoadData(CUmodule *module, const void *code) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    return begin(ctx, module, code, NULL);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *code, unsigned int count,
                            CUjit_option *options, void **values) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(count == 0 || (options && values), CUDA_ERROR_INVALID_VALUE);
    /* Nothing is compiled: the logs are empty. */
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES ||
            options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
            values[i] = NULL;
        }
    }
    return begin(ctx, module, code, NULL);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *code) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    return begin(ctx, module, code, NULL);
}

static void end(CUmodule module) {
    link_remove(&module->of_context);
    variables_end(&module->variables);
    image_end(&module->image);
    handle_end(module, HANDLE_MODULE);
}

CUresult cuModuleUnload(CUmodule module) {
    SG_READY();
    SG_REQUIRE(handle_given(module, HANDLE_MODULE), CUDA_ERROR_INVALID_HANDLE);
    SG_TRY(sg_drain_context(module->ctx));
    pthread_mutex_lock(&modules);
    CUcontext ctx = module->ctx;
    int loaded = image_loaded(&module->image);
    end(module);
    pthread_mutex_unlock(&modules);
    return code_take(ctx, -loaded);
}

void modules_end_context(CUcontext ctx) {
    pthread_mutex_lock(&modules);
    while (ctx->modules.next != &ctx->modules) {
        end(CONTAINER(ctx->modules.next, struct CUmod_st, of_context));
    }
    pthread_mutex_unlock(&modules);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    SG_READY();
    SG_REQUIRE(handle_given(module, HANDLE_MODULE), CUDA_ERROR_INVALID_HANDLE);
    SG_REQUIRE(function && name && *name, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&modules);
    CUfunction found = image_function(&module->image, name, HANDLE_FUNCTION);
    if (found) {
        found->module = module;
        found->ctx = module->ctx;
        *function = found;
    }
    pthread_mutex_unlock(&modules);
    return found ? function_load(found, module->ctx) : CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                              const char *name) {
    SG_READY();
    SG_REQUIRE(handle_given(module, HANDLE_MODULE), CUDA_ERROR_INVALID_HANDLE);
    SG_REQUIRE(name && (address || bytes), CUDA_ERROR_INVALID_VALUE);
    return variables_find(&module->variables, &module->image, name, address, bytes)
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    SG_READY();
    SG_REQUIRE(mode, CUDA_ERROR_INVALID_VALUE);
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module) {
    size_t length;

    SG_REQUIRE(count && module, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    SG_REQUIRE(handle_given(module, HANDLE_MODULE), CUDA_ERROR_INVALID_HANDLE);
    *count = 0;
    for (const char *at = NULL; (at = ptx_next_kernel(module->image.ptx, at, &length)) != NULL;) {
        ++*count;
    }
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule module) {
    char name[512];
    size_t length;

    SG_REQUIRE(functions && module, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    SG_REQUIRE(handle_given(module, HANDLE_MODULE), CUDA_ERROR_INVALID_HANDLE);
    for (const char *at = NULL;
         count > 0 && (at = ptx_next_kernel(module->image.ptx, at, &length)) != NULL;) {
        SG_REQUIRE(length < sizeof name, CUDA_ERROR_INVALID_IMAGE);
        memcpy(name, at, length);
        name[length] = '\0';
        SG_TRY(cuModuleGetFunction(functions++, module, name));
        count--;
    }
    return CUDA_SUCCESS;
}
