/* Modules and libraries from memory and from files, and the names of what is in them. */
#include "remote/client/module.h"

#include "remote/client/layout.h"
#include "remote/image.h"

#include <stdlib.h>
#include <string.h>

/* Code in memory: how long it is stands in itself, or is known. */
struct code {
    const void *at;
    size_t size;
};

static CUresult load(enum remote_number number, enum remote_kind kind, void *to, struct code code,
                     const struct remote_options *o) {
    struct remote_call call;
    struct remote_reply reply;

    remote_begin(&call, number, 3 + REMOTE_OPTION_WORDS);
    remote_make(&call, 0, 0, kind, to);
    if (code.size) {
        remote_code(&call, 1, 1, code.at, code.size);
    } else {
        remote_image(&call, 1, 1, code.at);
    }
    remote_options_put(&call, 3, o);
    if (remote_ask(&call, &reply)) {
        remote_options_get(&call, &reply, REMOTE_GIVEN_VALUES, REMOTE_GIVEN_LOGS, o);
    }
    remote_get_made(&call, &reply, 0, 0, kind, to);
    return (CUresult)remote_end(&call, &reply);
}

/* Reads a file and judges what is in it. */
static CUresult read_code(const char *path, char **bytes, struct code *code) {
    size_t size = 0;
    CUresult result = remote_file_read(path, bytes, &size);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    *code = (struct code){*bytes, remote_image_size_within(*bytes, size + 1)};
    if (code->size) {
        return CUDA_SUCCESS;
    }
    free(*bytes);
    return CUDA_ERROR_INVALID_IMAGE;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
                            CUjit_option *options, void **values) {
    struct remote_options o;
    CUresult result = (CUresult)remote_gate(REMOTE_cuModuleLoadDataEx);

    result = result == CUDA_SUCCESS ? remote_current_result() : result;
    result = result == CUDA_SUCCESS ? remote_options_read(&o, count, options, values) : result;
    return result == CUDA_SUCCESS ? load(REMOTE_cuModuleLoadDataEx, REMOTE_KIND_CUmodule, module,
                                         (struct code){image, 0}, &o)
                                  : result;
}

CUresult cuModuleLoad(CUmodule *module, const char *path) {
    struct remote_options o;
    struct code code;
    char *bytes;
    CUresult result = (CUresult)remote_gate(REMOTE_cuModuleLoad);

    result = result == CUDA_SUCCESS ? remote_current_result() : result;
    result = result == CUDA_SUCCESS ? remote_options_read(&o, 0, NULL, NULL) : result;
    result = result == CUDA_SUCCESS && !(module && path) ? CUDA_ERROR_INVALID_VALUE : result;
    result = result == CUDA_SUCCESS ? read_code(path, &bytes, &code) : result;
    if (result == CUDA_SUCCESS) {
        result = load(REMOTE_cuModuleLoadDataEx, REMOTE_KIND_CUmodule, module, code, &o);
        free(bytes);
    }
    return result;
}

/* Options of libraries: that the program keeps the code, which the worker has a copy of, or a table of the program's own
 * functions. */
#define BINARY_IS_PRESERVED 1u

static CUresult judge(const CUlibraryOption *options, void *const *values, unsigned count) {
    if (count && (!options || !values)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < count; i++) {
        if ((uint32_t)options[i] != BINARY_IS_PRESERVED) {
            return options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE
                       ? CUDA_ERROR_NOT_SUPPORTED
                       : CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *jit,
                           void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                           void **values, unsigned int count) {
    struct remote_options o;
    CUresult result = (CUresult)remote_gate(REMOTE_cuLibraryLoadData);

    result = result == CUDA_SUCCESS ? remote_options_read(&o, jit_count, jit, jit_values) : result;
    result = result == CUDA_SUCCESS ? judge(options, values, count) : result;
    return result == CUDA_SUCCESS ? load(REMOTE_cuLibraryLoadData, REMOTE_KIND_CUlibrary, library,
                                         (struct code){image, 0}, &o)
                                  : result;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit,
                               void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                               void **values, unsigned int count) {
    struct remote_options o;
    struct code code;
    char *bytes;
    CUresult result = (CUresult)remote_gate(REMOTE_cuLibraryLoadFromFile);

    result = result == CUDA_SUCCESS ? remote_options_read(&o, jit_count, jit, jit_values) : result;
    result = result == CUDA_SUCCESS ? judge(options, values, count) : result;
    result = result == CUDA_SUCCESS && !(library && path) ? CUDA_ERROR_INVALID_VALUE : result;
    result = result == CUDA_SUCCESS ? read_code(path, &bytes, &code) : result;
    if (result == CUDA_SUCCESS) {
        result = load(REMOTE_cuLibraryLoadData, REMOTE_KIND_CUlibrary, library, code, &o);
        free(bytes);
    }
    return result;
}

/* The driver lends the name for as long as the code is loaded; so does the client. */
static CUresult name_of(enum remote_number number, enum remote_kind kind, const char **name,
                        uint64_t handle) {
    struct remote_call call;
    struct remote_reply reply;
    CUresult result = (CUresult)remote_gate(number);

    if (result != CUDA_SUCCESS || !name || !handle) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    /* A kernel may be given as a function. */
    enum remote_kind is = remote_number_known(kind, handle) ? kind : REMOTE_KIND_CUkernel;
    const char *kept = remote_name_kept(is, handle);
    if (kept) {
        *name = kept;
        return CUDA_SUCCESS;
    }
    char *text = calloc(1, REMOTE_ARRAY_BYTES + 1);
    if (!text) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    remote_begin(&call, number, 1);
    remote_use(&call, 0, kind, handle);
    remote_given(&call, 0, name);
    if (remote_ask(&call, &reply)) {
        remote_get_some(&call, &reply, 0, text, REMOTE_ARRAY_BYTES, false);
    }
    result = (CUresult)remote_end(&call, &reply);
    if (result == CUDA_SUCCESS) {
        kept = remote_name_keep(is, handle, text, REMOTE_ARRAY_BYTES);
        result = kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        *name = kept ? kept : *name;
    }
    free(text);
    return result;
}

CUresult cuFuncGetName(const char **name, CUfunction function) {
    return name_of(REMOTE_cuFuncGetName, REMOTE_KIND_CUfunction, name, (uint64_t)function);
}

CUresult cuKernelGetName(const char **name, CUkernel kernel) {
    return name_of(REMOTE_cuKernelGetName, REMOTE_KIND_CUkernel, name, (uint64_t)kernel);
}
