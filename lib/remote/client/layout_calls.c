/* Calls that tell of functions and kernels, and of their parameters. */
#include "remote/client/layout.h"
#include "remote/client/pack.h"
#include "remote/generated/cuda_stubs.h"

#include <stdlib.h>
#include <string.h>

/* Notes what a call has told. */
static void told(enum remote_kind kind, const void *to, enum remote_kind owner_kind,
                 const void *owner) {
    remote_code_told(kind, (uint64_t)to, owner_kind, (uint64_t)owner);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    CUresult result = remote_call_cuModuleGetFunction(function, module, name);

    if (result == CUDA_SUCCESS && function) {
        told(REMOTE_KIND_CUfunction, *function, REMOTE_KIND_CUmodule, module);
    }
    return result;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    CUresult result = remote_call_cuLibraryGetKernel(kernel, library, name);

    if (result == CUDA_SUCCESS && kernel) {
        told(REMOTE_KIND_CUkernel, *kernel, REMOTE_KIND_CUlibrary, library);
    }
    return result;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    CUresult result = remote_call_cuKernelGetFunction(function, kernel);

    if (result == CUDA_SUCCESS && function) {
        told(REMOTE_KIND_CUfunction, *function, REMOTE_KIND_CUkernel, kernel);
    }
    return result;
}

/* The driver writes as many as there are, and leaves the rest of the array as it was: another array, of zeros, shows how many. */
#define MOST_TOLD (REMOTE_ARRAY_BYTES / sizeof(uint64_t))

static void told_some(enum remote_kind kind, void *to, const uint64_t *numbers, unsigned count,
                      enum remote_kind owner_kind, uint64_t owner) {
    unsigned i = 0;

    for (; i < count && numbers[i]; i++) {
        remote_code_told(kind, numbers[i], owner_kind, owner);
    }
    memcpy(to, numbers, i * sizeof *numbers);
}

#define ENUMERATE(name, type, owner_type)                                                          \
    CUresult name(type *to, unsigned int count, owner_type owner) {                                \
        type *told = to && count <= MOST_TOLD ? calloc(count + 1u, sizeof *told) : NULL;           \
        CUresult result = remote_call_##name(told ? told : to, count, owner);                      \
        if (told && result == CUDA_SUCCESS) {                                                      \
            told_some(REMOTE_KIND_##type, to, (const uint64_t *)(const void *)told, count,         \
                      REMOTE_KIND_##owner_type, (uint64_t)owner);                                  \
        }                                                                                          \
        free(told);                                                                                \
        return result;                                                                             \
    }

ENUMERATE(cuModuleEnumerateFunctions, CUfunction, CUmodule)
ENUMERATE(cuLibraryEnumerateKernels, CUkernel, CUlibrary)

/* Nobody may wait for these, so that NULL is refused here. The numbers of functions end before their code: the driver may give
 * their addresses to those of another thread before it answers. */
#define UNLOAD(name, type)                                                                         \
    CUresult name(type code) {                                                                     \
        CUresult result = (CUresult)remote_gate(REMOTE_##name);                                    \
                                                                                                   \
        if (result != CUDA_SUCCESS || !code) {                                                     \
            return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_HANDLE : result;                    \
        }                                                                                          \
        if (remote_number_known(REMOTE_KIND_##type, (uint64_t)code)) {                             \
            remote_code_ended(REMOTE_KIND_##type, (uint64_t)code);                                 \
        }                                                                                          \
        return remote_call_##name(code);                                                           \
    }

UNLOAD(cuModuleUnload, CUmodule)
UNLOAD(cuLibraryUnload, CUlibrary)

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size) {
    CUresult result = remote_gate(REMOTE_cuFuncGetParamInfo);

    if (result != CUDA_SUCCESS || !offset) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    const struct remote_layout *layout = remote_layout_of(function, &result);
    if (!layout || index >= layout->count) {
        return layout ? CUDA_ERROR_INVALID_VALUE : result;
    }
    *offset = layout->params[index].at;
    if (size) {
        *size = layout->params[index].size;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamCount(CUfunction function, size_t *count) {
    CUresult result = remote_gate(REMOTE_cuFuncGetParamCount);

    if (result != CUDA_SUCCESS || !count) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    const struct remote_layout *layout = remote_layout_of(function, &result);
    if (layout) {
        *count = layout->count;
    }
    return result;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size) {
    return cuFuncGetParamInfo((CUfunction)kernel, index, offset, size);
}

CUresult cuKernelGetParamCount(CUkernel kernel, size_t *count) {
    return cuFuncGetParamCount((CUfunction)kernel, count);
}
