/*
 * Modules and libraries. Their variables are reserved before they are loaded. Their code takes device
 * memory whose size no call tells, and may be loaded as late as at a kernel's first launch, so what a
 * load takes of it is no more than a hint.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/memory/code.h"
#include "cuda/memory/libraries.h"
#include "cuda/memory/overhead.h"
#include "cuda/memory/variables.h"
#include "libc/cancel.h"

#define FIRST_BYTES ((size_t)1 << 20)

static CUresult told(CUresult result, void (*tell)(unsigned device)) {
    struct home home;
    if (result == CUDA_SUCCESS && context_current(&home) == CUDA_SUCCESS) {
        tell(home.device);
    }
    return result;
}

/* All bytes of a file; *room is what is mapped. NULL if it cannot be read, as the driver will say. */
static char *file_bytes(const char *path, size_t *length, size_t *room) {
    int file = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    char *bytes = file >= 0 ? mmap(NULL, FIRST_BYTES, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                            : MAP_FAILED;
    ssize_t got = bytes != MAP_FAILED;
    *room = FIRST_BYTES;
    *length = 0;
    while (bytes != MAP_FAILED && (got = read(file, bytes + *length, *room - *length)) > 0) {
        *length += (size_t)got;
        if (*length == *room) {
            char *more = mremap(bytes, *room, 2 * *room, MREMAP_MAYMOVE);
            if (more == MAP_FAILED) {
                munmap(bytes, *room);
            }
            bytes = more;
            *room *= 2;
        }
    }
    if (bytes != MAP_FAILED && got < 0) {
        munmap(bytes, *room);
        bytes = MAP_FAILED;
    }
    if (file >= 0) {
        close(file);
    }
    return bytes != MAP_FAILED ? bytes : NULL;
}

/* The first argument is the code of a file. */
static struct image image_of_file(const char *path) {
    size_t length, room;
    int before = cancel_hold();
    char *bytes = file_bytes(path, &length, &room);
    struct image image = bytes != NULL ? image_read(bytes, length) : (struct image){.hidden = true};
    if (bytes != NULL) {
        munmap(bytes, room);
    }
    cancel_allow(&before);
    return image;
}

static struct image image_in_memory(const void *code) {
    return image_read(code, SIZE_MAX);
}

/* A function that loads a module into the current context. */
#define LOADS_MODULE(fn, read, code, ...)                                                          \
    struct variables variables;                                                                    \
    if (DV_INNER()) {                                                                              \
        return DV_REAL(fn)(__VA_ARGS__);                                                           \
    }                                                                                              \
    struct image image = read(code);                                                               \
    CUresult result = variables_open(&variables, &image);                                          \
    if (result != CUDA_SUCCESS) {                                                                  \
        return result;                                                                             \
    }                                                                                              \
    result = DV_CALL(fn, __VA_ARGS__);                                                             \
    variables_settle(&variables, result, result == CUDA_SUCCESS ? *module : NULL);                 \
    return told(result, overhead_look)

CUresult cuModuleLoad(CUmodule *module, const char *file) {
    LOADS_MODULE(cuModuleLoad, image_of_file, file, module, file);
}

CUresult cuModuleLoadData(CUmodule *module, const void *code) {
    LOADS_MODULE(cuModuleLoadData, image_in_memory, code, module, code);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *code, unsigned count,
                            CUjit_option *options, void **values) {
    LOADS_MODULE(cuModuleLoadDataEx, image_in_memory, code, module, code, count, options, values);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *code) {
    LOADS_MODULE(cuModuleLoadFatBinary, image_in_memory, code, module, code);
}

CUresult cuModuleUnload(CUmodule module) {
    struct entry entry;
    if (DV_INNER()) {
        return DV_REAL(cuModuleUnload)(module);
    }
    TELL(code_ending, (module));
    bool known = variables_take(module, &entry);
    CUresult result = DV_CALL(cuModuleUnload, module);
    if (known) {
        variables_ended(module, &entry, result);
    }
    if (result != CUDA_SUCCESS) {
        TELL(code_spared, (module));
    }
    return told(result, overhead_lessened);
}

/* A function that loads a library into all contexts. */
#define LOADS_LIBRARY(fn, read, code, ...)                                                         \
    struct library_load load;                                                                      \
    struct growth growths[2];                                                                      \
    if (DV_INNER()) {                                                                              \
        return DV_REAL(fn)(__VA_ARGS__);                                                           \
    }                                                                                              \
    struct image image = read(code);                                                               \
    CUresult result = variables_grow(growths, &image);                                             \
    if (result != CUDA_SUCCESS) {                                                                  \
        return result;                                                                             \
    }                                                                                              \
    result = library_loading(&load, image.variables);                                              \
    if (result == CUDA_SUCCESS) {                                                                  \
        result = DV_CALL(fn, __VA_ARGS__);                                                         \
        library_loaded(&load, result, result == CUDA_SUCCESS ? *library : NULL);                   \
    }                                                                                              \
    variables_grown(growths, result);                                                              \
    return told(result, overhead_look)

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit,
                           void **jit_values, unsigned jits, CUlibraryOption *options,
                           void **values, unsigned count) {
    LOADS_LIBRARY(cuLibraryLoadData, image_in_memory, code, library, code, jit, jit_values, jits,
                  options, values, count);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file, CUjit_option *jit,
                               void **jit_values, unsigned jits, CUlibraryOption *options,
                               void **values, unsigned count) {
    LOADS_LIBRARY(cuLibraryLoadFromFile, image_of_file, file, library, file, jit, jit_values, jits,
                  options, values, count);
}

CUresult cuLibraryUnload(CUlibrary library) {
    if (DV_INNER()) {
        return DV_REAL(cuLibraryUnload)(library);
    }
    TELL(code_ending, (library));
    uint64_t bytes = library_unloading(library);
    CUresult result = DV_CALL(cuLibraryUnload, library);
    library_unloaded(library, bytes, result);
    if (result != CUDA_SUCCESS) {
        TELL(code_spared, (library));
    }
    return told(result, overhead_lessened);
}
