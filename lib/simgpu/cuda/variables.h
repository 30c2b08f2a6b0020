/* The variables of code: what it has of them, and their memory in a context. */
#ifndef SIMGPU_CUDA_VARIABLES_H
#define SIMGPU_CUDA_VARIABLES_H

#include "simgpu/cuda/driver.h"

/* The variables of one module, or of a library in one context. All zero: none. */
struct variables {
    CUdeviceptr base;      /* of the first, in the order of the text; 0 without any */
    struct range *range;   /* of their own; NULL for small ones, */
    struct region *region; /* which lie in a block of the context's */
};

/* They have their memory from the loading of code into a context on; new memory reads as zero. Kernels
 * that allocate or print give the context a heap or a buffer, of the size that its limits say. */
CUresult variables_begin(struct variables *variables, CUcontext ctx, const struct image *image);
void variables_end(struct variables *variables);
/* The variable's address and size; false without one of that name. Binary code has no names. */
bool variables_find(const struct variables *variables, const struct image *image, const char *name,
                    CUdeviceptr *address, size_t *bytes);

/* binary.c. Bytes of variables in an ELF file, and where a fat binary has code that can be read: its
 * first member that is not compressed; NULL without one. */
uint64_t binary_variables(const unsigned char *elf);
const unsigned char *binary_member(const unsigned char *fat, uint64_t *bytes, bool *text);

#endif
