/*
 * What code says of the memory that the driver takes for it when it is loaded into a context:
 * variables, whose sizes stand in the code, and what kernels need that allocate or print.
 *
 * The reader sees what the program hands to the driver, in the program's own memory. It believes the
 * sizes that a header states, as the driver does.
 */
#ifndef DIVVY_CUDA_MEMORY_IMAGE_H
#define DIVVY_CUDA_MEMORY_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMAGE_HUGE (UINT64_C(1) << 48) /* more than any GPU has */

struct image {
    uint64_t variables; /* bytes; IMAGE_HUGE if they may be of any size */
    bool allocates;     /* kernels may call malloc */
    bool prints;        /* kernels may call printf */
    bool hidden;        /* part of it is compressed, or of a format that is not known */
};

/* Reads PTX, an ELF file, or a fat binary, of which it takes the most of any member: the driver loads
 * one. `most` is how many bytes there are, SIZE_MAX if only the code itself tells. */
struct image image_read(const void *code, size_t most);

/* The same of PTX, which ends at a NUL if not before (text.c). */
struct image image_read_text(const char *text, size_t most);

#endif
