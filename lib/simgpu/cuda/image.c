/* Code as modules and libraries are loaded from it. Kernels are known by name, so PTX is searched
 * for its entries. Binary code is assumed to have every kernel that is asked for. */
#define _GNU_SOURCE
#include "simgpu/cuda/driver.h"

#include <ctype.h>
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

static bool in_name(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

const char *image_next(const struct image *image, const char *after, size_t *length) {
    const char *at = after ? after : image->ptx;

    while (at && (at = strstr(at, ".entry")) != NULL) {
        at += strlen(".entry");
        if (!isspace((unsigned char)*at)) {
            continue;
        }
        while (isspace((unsigned char)*at)) {
            at++;
        }
        for (*length = 0; in_name(at[*length]);) {
            ++*length;
        }
        if (*length) {
            return at;
        }
    }
    return NULL;
}

static bool has(const struct image *image, const char *name) {
    size_t length;

    if (!image->ptx) {
        return true;
    }
    for (const char *at = NULL; (at = image_next(image, at, &length)) != NULL;) {
        if (strlen(name) == length && memcmp(at, name, length) == 0) {
            return true;
        }
    }
    return false;
}

CUfunction image_function(struct image *image, const char *name, enum handle_kind kind) {
    CUfunction f = image->functions;

    while (f && strcmp(f->name, name) != 0) {
        f = f->next;
    }
    if (f || !has(image, name)) {
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
    f->known = kernel_known(name);
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
