/* The linker of code makes one image of its inputs. PTX is joined; of binary code the last input is
 * the image. */
#define _GNU_SOURCE
#include "simgpu/cuda/driver.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libc/kernel.h"

struct CUlinkState_st {
    struct handle handle;
    char *code; /* NUL-terminated behind `size` bytes */
    size_t size;
};

static CUresult usable(CUlinkState state) {
    SG_READY();
    return handle_given(state, HANDLE_LINK) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values,
                         CUlinkState *out) {
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(out && (count == 0 || (options && values)), CUDA_ERROR_INVALID_VALUE);
    CUlinkState state = handle_new(HANDLE_LINK, sizeof *state);
    if (!state) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = state;
    return CUDA_SUCCESS;
}

CUresult cuLinkCreate(unsigned int count, CUjit_option *options, void **values, CUlinkState *out) {
    return cuLinkCreate_v2(count, options, values, out);
}

static CUresult append(CUlinkState state, CUjitInputType type, const void *data, size_t size) {
    size_t before = type == CU_JIT_INPUT_PTX ? state->size : 0;
    char *code = realloc(state->code, before + size + 2);

    if (!code) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(code + before, data, size);
    /* The terminator that PTX may come with must not end the whole. */
    if (type == CU_JIT_INPUT_PTX && size && code[before + size - 1] == '\0') {
        code[before + size - 1] = '\n';
    }
    state->code = code;
    state->size = before + size;
    code[state->size] = '\0';
    return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
                          const char *name, unsigned int count, CUjit_option *options,
                          void **values) {
    (void)name;
    SG_REQUIRE(state, CUDA_ERROR_INVALID_HANDLE);
    SG_TRY(usable(state));
    SG_REQUIRE(data && size && (unsigned)type <= CU_JIT_INPUT_LIBRARY &&
                   (count == 0 || (options && values)),
               CUDA_ERROR_INVALID_VALUE);
    return append(state, type, data, size);
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size,
                       const char *name, unsigned int count, CUjit_option *options, void **values) {
    return cuLinkAddData_v2(state, type, data, size, name, count, options, values);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path,
                          unsigned int count, CUjit_option *options, void **values) {
    CUresult result = CUDA_ERROR_FILE_NOT_FOUND;
    struct stat info;

    SG_REQUIRE(state, CUDA_ERROR_INVALID_HANDLE);
    SG_TRY(usable(state));
    SG_REQUIRE(path && (count == 0 || (options && values)), CUDA_ERROR_INVALID_VALUE);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return result;
    }
    char *data = kernel_fstat(fd, &info) == 0 ? malloc((size_t)info.st_size + 1) : NULL;
    if (data && read(fd, data, (size_t)info.st_size) == info.st_size) {
        result = append(state, type, data, (size_t)info.st_size);
    }
    free(data);
    close(fd);
    return result;
}

CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path, unsigned int count,
                       CUjit_option *options, void **values) {
    return cuLinkAddFile_v2(state, type, path, count, options, values);
}

CUresult cuLinkComplete(CUlinkState state, void **image, size_t *size) {
    SG_REQUIRE(state, CUDA_ERROR_INVALID_HANDLE);
    SG_TRY(usable(state));
    SG_REQUIRE(image && state->code, CUDA_ERROR_INVALID_VALUE);
    *image = state->code;
    if (size) {
        *size = state->size + 1;
    }
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
    SG_REQUIRE(state, CUDA_ERROR_INVALID_HANDLE);
    SG_TRY(usable(state));
    free(state->code);
    state->code = NULL;
    handle_end(state, HANDLE_LINK);
    return CUDA_SUCCESS;
}
