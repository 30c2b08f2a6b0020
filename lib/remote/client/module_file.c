/* Files with code, which are the program's. */
#define _GNU_SOURCE
#include "remote/client/module.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libc/kernel.h"

/* Longer code is not believed, from memory either. */
#define MOST_BYTES (INT64_C(1) << 32)

static bool read_all(int file, char *to, size_t size) {
    while (size) {
        ssize_t got = read(file, to, size);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        /* A file that was cut meanwhile has no code. */
        if (got <= 0) {
            return false;
        }
        to += got;
        size -= (size_t)got;
    }
    return true;
}

CUresult remote_file_read(const char *path, char **bytes, size_t *size) {
    struct stat facts;
    CUresult result = CUDA_ERROR_FILE_NOT_FOUND;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    *bytes = NULL;
    if (file < 0) {
        return result;
    }
    if (kernel_fstat(file, &facts) == 0 && S_ISREG(facts.st_mode)) {
        *size = (size_t)facts.st_size;
        result = facts.st_size > MOST_BYTES             ? CUDA_ERROR_INVALID_IMAGE
                 : (*bytes = malloc(*size + 1)) == NULL ? CUDA_ERROR_OUT_OF_MEMORY
                 : !read_all(file, *bytes, *size)       ? CUDA_ERROR_INVALID_IMAGE
                                                        : CUDA_SUCCESS;
    }
    close(file);
    if (result != CUDA_SUCCESS) {
        free(*bytes);
        *bytes = NULL;
        return result;
    }
    (*bytes)[*size] = '\0';
    return CUDA_SUCCESS;
}
