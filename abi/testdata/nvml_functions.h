/* Written by go run ./abi/gen from abi/nvml.yaml; do not edit. */
#ifndef DIVVY_ABI_NVML_FUNCTIONS_H
#define DIVVY_ABI_NVML_FUNCTIONS_H

#include "nvml_types.h"

#define NVML_FN_COUNT 2

#pragma GCC visibility push(default)
const char *nvmlErrorString(nvmlReturn_t);
nvmlReturn_t nvmlInit_v2(void);
#pragma GCC visibility pop

#endif
