/* What the files with calls of NVML share. */
#ifndef DIVVY_REMOTE_NVML_H
#define DIVVY_REMOTE_NVML_H

#include "abi/generated/nvml_functions.h"
#include "remote/client/inside.h"

/* The number that the program is told for a process of the GPU's host, and the one that it means by its own. */
unsigned nvml_shown(unsigned process);
unsigned nvml_meant(unsigned process);

#endif
