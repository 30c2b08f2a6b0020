/* What programs ask about the text of a module: its kernels, their parameters, its variables. The form is
 * that of the "Parallel Thread Execution ISA" manual. Nothing is compiled, and what cannot be read is
 * passed over. */
#ifndef SIMGPU_CUDA_PTX_H
#define SIMGPU_CUDA_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One variable of a module, or one parameter of a kernel. */
struct ptx_variable {
    const char *name; /* in the text */
    size_t length;
    uint64_t bytes;
    uint64_t align;
    unsigned width;   /* bytes of one element */
    const char *init; /* the first character of the initialiser, NULL without one */
};

/* Names of the kernels, one after another; returns NULL after the last. */
const char *ptx_next_kernel(const char *text, const char *after, size_t *length);
/* The variables in GPU memory, one after another: where to go on, or NULL after the last. */
const char *ptx_next_variable(const char *text, const char *after, struct ptx_variable *out);
/* Parameter `index` of the kernel whose name stands at `kernel`, and where it lies among the others; false
 * when it has fewer. */
bool ptx_param(const char *kernel, size_t index, struct ptx_variable *out, uint64_t *offset);
/* Whether a function of this name is declared, which kernels then call. */
bool ptx_calls(const char *text, const char *function);
/* Bytes of local memory that each thread of the kernel needs whose name stands at `kernel`. */
int ptx_local(const char *kernel);
/* Writes the numbers of an initialiser, as far as there is room and up to the first thing that is none. */
void ptx_initial(const struct ptx_variable *variable, unsigned char *contents);

#endif
