/* Code as modules and libraries are loaded from it. Kernels are known by name, so PTX is searched
 * for its entries. Binary code is assumed to have every kernel that is asked for. */
#define _GNU_SOURCE
#include "simgpu/cuda/driver.h"
#include "simgpu/cuda/ptx.h"
#include "simgpu/cuda/variables.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libc/kernel.h"

#define FATBIN_WRAPPER 0x466243b1u /* first word of what nvcc hands to cuModuleLoadFatBinary */
#define FATBIN 0xba55ed50u         /* first word of the fat binary itself */

static CUresult take_text(struct image *image, const char *text, size_t bytes) {
    image->ptx = strndup(text, bytes);
    if (!image->ptx) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    image->allocates = ptx_calls(image->ptx, "malloc");
    image->prints = ptx_calls(image->ptx, "vprintf");
    return CUDA_SUCCESS;
}

/* A fat binary without code that can be read is taken to have every kernel. */
static CUresult load_fat(struct image *image, const unsigned char *code) {
    uint64_t bytes;
    bool text;
    const unsigned char *member = binary_member(code, &bytes, &text);

    if (member && text) {
        return take_text(image, (const char *)member, bytes);
    }
    image->variable_bytes = member ? binary_variables(member) : 0;
    return CUDA_SUCCESS;
}

CUresult image_load(struct image *image, const void *code) {
    uint32_t word;

    memset(image, 0, sizeof *image);
    SG_REQUIRE(code, CUDA_ERROR_INVALID_VALUE);
    /* The shortest possible PTX, "//", is longer than nothing; a word may be longer than that. */
    if (memchr(code, '\0', 1)) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    if (memcmp(code, "\177", 1) == 0) {
        SG_REQUIRE(memcmp(code, "\177ELF", 4) == 0, CUDA_ERROR_INVALID_IMAGE);
        image->variable_bytes = binary_variables(code);
        return CUDA_SUCCESS;
    }
    if (*(const unsigned char *)code >= 0x80 || *(const unsigned char *)code == 0x50) {
        memcpy(&word, code, sizeof word);
        SG_REQUIRE(word == FATBIN || word == FATBIN_WRAPPER, CUDA_ERROR_INVALID_IMAGE);
        return load_fat(image, code);
    }
    SG_REQUIRE(strstr(code, ".version"), CUDA_ERROR_INVALID_IMAGE);
    return take_text(image, code, strlen(code));
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
