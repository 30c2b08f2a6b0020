/*
 * Modules and libraries that end.
 */
#ifndef DIVVY_CUDA_MEMORY_CODE_H
#define DIVVY_CUDA_MEMORY_CODE_H

#include "cuda/event.h"

/* The driver is about to unload a module or library of this handle; it has not. */
EVENT(code_ending, (const void *code));
EVENT(code_spared, (const void *code));

#endif
