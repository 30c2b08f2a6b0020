/*
 * Modules and libraries. Their code and variables take device memory whose size no call tells, so
 * it is measured after each load and unload.
 */
#include "cuda/memory/overhead.h"

static CUresult measured(CUresult result) {
    struct home home;
    if (result == CUDA_SUCCESS && dv_depth == 0 && context_current(&home) == CUDA_SUCCESS) {
        overhead_measure(home.device);
    }
    return result;
}

CUresult cuModuleLoad(CUmodule *module, const char *file) {
    return measured(DV_CALL(cuModuleLoad, module, file));
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return measured(DV_CALL(cuModuleLoadData, module, image));
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                            CUjit_option *options, void **values) {
    return measured(DV_CALL(cuModuleLoadDataEx, module, image, count, options, values));
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    return measured(DV_CALL(cuModuleLoadFatBinary, module, image));
}

CUresult cuModuleUnload(CUmodule module) {
    return measured(DV_CALL(cuModuleUnload, module));
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit,
                           void **jit_values, unsigned jits, CUlibraryOption *options,
                           void **values, unsigned count) {
    return measured(
        DV_CALL(cuLibraryLoadData, library, code, jit, jit_values, jits, options, values, count));
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file, CUjit_option *jit,
                               void **jit_values, unsigned jits, CUlibraryOption *options,
                               void **values, unsigned count) {
    return measured(DV_CALL(cuLibraryLoadFromFile, library, file, jit, jit_values, jits, options,
                            values, count));
}

CUresult cuLibraryUnload(CUlibrary library) {
    return measured(DV_CALL(cuLibraryUnload, library));
}
