/*
 * Modules and libraries. Their code and variables take device memory whose size no call tells. Code
 * may be loaded as late as at a kernel's first launch, so what a load takes is no more than a hint.
 */
#include "cuda/memory/code.h"
#include "cuda/memory/overhead.h"

static CUresult told(CUresult result, void (*tell)(unsigned device)) {
    struct home home;
    if (result == CUDA_SUCCESS && context_current(&home) == CUDA_SUCCESS) {
        tell(home.device);
    }
    return result;
}

/* Calls the driver, and looks after a call of the program. */
#define LOADS(fn, ...)                                                                             \
    (DV_INNER() ? DV_REAL(fn)(__VA_ARGS__) : told(DV_CALL(fn, __VA_ARGS__), overhead_look))
static CUresult unloaded(CUresult result, const void *code) {
    if (result != CUDA_SUCCESS) {
        TELL(code_spared, (code));
    }
    return told(result, overhead_lessened);
}

#define UNLOADS(fn, code)                                                                          \
    if (DV_INNER()) {                                                                              \
        return DV_REAL(fn)(code);                                                                  \
    }                                                                                              \
    TELL(code_ending, (code));                                                                     \
    return unloaded(DV_CALL(fn, code), code);

CUresult cuModuleLoad(CUmodule *module, const char *file) {
    return LOADS(cuModuleLoad, module, file);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return LOADS(cuModuleLoadData, module, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                            CUjit_option *options, void **values) {
    return LOADS(cuModuleLoadDataEx, module, image, count, options, values);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    return LOADS(cuModuleLoadFatBinary, module, image);
}

CUresult cuModuleUnload(CUmodule module){UNLOADS(cuModuleUnload, module)}

CUresult
    cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit, void **jit_values,
                      unsigned jits, CUlibraryOption *options, void **values, unsigned count) {
    return LOADS(cuLibraryLoadData, library, code, jit, jit_values, jits, options, values, count);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file, CUjit_option *jit,
                               void **jit_values, unsigned jits, CUlibraryOption *options,
                               void **values, unsigned count) {
    return LOADS(cuLibraryLoadFromFile, library, file, jit, jit_values, jits, options, values,
                 count);
}

CUresult cuLibraryUnload(CUlibrary library) {
    UNLOADS(cuLibraryUnload, library)
}
