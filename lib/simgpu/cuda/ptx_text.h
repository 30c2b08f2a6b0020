/* The words, numbers and constant expressions of a module's text. */
#ifndef SIMGPU_CUDA_PTX_TEXT_H
#define SIMGPU_CUDA_PTX_TEXT_H

#include <stdbool.h>
#include <stdint.h>

bool ptx_in_name(char c);
/* Goes over white space and comments. */
const char *ptx_skip(const char *at);
/* Whether the word is next, and a word of its own; then goes over it. */
bool ptx_word(const char **at, const char *expected);
/* A number in any of the bases; goes over it. */
bool ptx_number(const char **at, uint64_t *value);
/* A constant expression of integers; goes over it. False if it is none, or has no value. */
bool ptx_constant(const char **at, uint64_t *value);

#endif
