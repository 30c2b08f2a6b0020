/*
 * Modules and libraries. Their code and variables take device memory whose size no call tells, so
 * it is measured after each load and unload.
 */
#include "cuda/memory/overhead.h"

static CUresult measured(CUresult result) {
    struct home home;
    if (result == CUDA_SUCCESS && context_current(&home) == CUDA_SUCCESS) {
        overhead_measure(home.device);
    }
    return result;
}

/* Calls the driver, and measures after a call of the program. */
#define MEASURED(fn, ...)                                                                          \
    (DV_INNER() ? DV_REAL(fn)(__VA_ARGS__) : measured(DV_CALL(fn, __VA_ARGS__)))

CUresult cuModuleLoad(CUmodule *module, const char *file) {
    return MEASURED(cuModuleLoad, module, file);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return MEASURED(cuModuleLoadData, module, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                            CUjit_option *options, void **values) {
    return MEASURED(cuModuleLoadDataEx, module, image, count, options, values);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    return MEASURED(cuModuleLoadFatBinary, module, image);
}

CUresult cuModuleUnload(CUmodule module) {
    return MEASURED(cuModuleUnload, module);
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit,
                           void **jit_values, unsigned jits, CUlibraryOption *options,
                           void **values, unsigned count) {
    return MEASURED(cuLibraryLoadData, library, code, jit, jit_values, jits, options, values,
                    count);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file, CUjit_option *jit,
                               void **jit_values, unsigned jits, CUlibraryOption *options,
                               void **values, unsigned count) {
    return MEASURED(cuLibraryLoadFromFile, library, file, jit, jit_values, jits, options, values,
                    count);
}

CUresult cuLibraryUnload(CUlibrary library) {
    return MEASURED(cuLibraryUnload, library);
}
