/* Code as modules and libraries are loaded from it. Kernels are known by name, so PTX is searched
 * for its entries. Binary code is assumed to have every kernel that is asked for. */
#define _GNU_SOURCE
#include "simgpu/cuda/driver.h"
#include "simgpu/cuda/ptx.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libc/kernel.h"

#define FATBIN_WRAPPER 0x466243b1u /* first word of what nvcc hands to cuModuleLoadFatBinary */
#define FATBIN 0xba55ed50u         /* first word of the fat binary itself */

CUresult image_load(struct image *image, const void *code) {
    uint32_t word;

    memset(image, 0, sizeof *image);
    SG_REQUIRE(code, CUDA_ERROR_INVALID_VALUE);
    /* The shortest possible PTX, "//", is longer than nothing; a word may be longer than that. */
    if (memchr(code, '\0', 1)) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    if (memcmp(code, "\177", 1) == 0) {
        return memcmp(code, "\177ELF", 4) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
    }
    if (*(const unsigned char *)code >= 0x80 || *(const unsigned char *)code == 0x50) {
        memcpy(&word, code, sizeof word);
        return word == FATBIN || word == FATBIN_WRAPPER ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
    }
    if (!strstr(code, ".version")) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    image->ptx = strdup(code);
    return image->ptx ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult image_load_file(struct image *image, const char *path) {
    CUresult result = CUDA_ERROR_FILE_NOT_FOUND;
    struct stat info;

    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return result;
    }
    char *code = kernel_fstat(fd, &info) == 0 && info.st_size >= 0
                     ? calloc(1, (size_t)info.st_size + 8)
                     : NULL;
    if (!code) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (read(fd, code, (size_t)info.st_size) == info.st_size) {
        result = image_load(image, code);
    }
    free(code);
    close(fd);
    return result;
}

/* The kernel's name in the text, NULL without one. */
static const char *kernel_in(const struct image *image, const char *name) {
    size_t length;

    for (const char *at = NULL; (at = ptx_next_kernel(image->ptx, at, &length)) != NULL;) {
        if (strlen(name) == length && memcmp(at, name, length) == 0) {
            return at;
        }
    }
    return NULL;
}

int image_loaded(const struct image *image) {
    int loaded = 0;

    for (const struct CUfunc_st *f = image->functions; f; f = f->next) {
        loaded += __atomic_load_n(&f->loaded, __ATOMIC_RELAXED);
    }
    return loaded;
}

CUfunction image_function(struct image *image, const char *name, enum handle_kind kind) {
    CUfunction f = image->functions;

    while (f && strcmp(f->name, name) != 0) {
        f = f->next;
    }
    const char *entry = kernel_in(image, name);
    if (f || (image->ptx && !entry)) {
        return f;
    }
    f = handle_new(kind, sizeof *f);
    if (!f) {
        return NULL;
    }
    if (!(f->name = strdup(name))) {
        handle_end(f, kind);
        return NULL;
    }
    f->entry = entry;
    f->known = kernel_known(name);
    f->attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES] = entry ? ptx_local(entry) : 0;
    f->next = image->functions;
    image->functions = f;
    return f;
}

void image_end(struct image *image) {
    while (image->functions) {
        CUfunction f = image->functions;
        image->functions = f->next;
        free(f->name);
        f->name = NULL;
        handle_end(f, (enum handle_kind)f->handle.mark);
    }
    free(image->ptx);
    image->ptx = NULL;
}
