#include "remote/client/names.h"

#include "abi/generated/cuda_functions.h"
#include "abi/generated/nvml_functions.h"

/* The table's type is no function's; whoever calls through it knows the function's. */
#pragma GCC diagnostic ignored "-Wcast-function-type"

remote_function *const divvy_remote_cuda[] = {
#define CUDA_FN(name, base, since, variant, kind, hooked) (remote_function *)name,
#include "abi/generated/cuda_names.inc"
#undef CUDA_FN
};

remote_function *const divvy_remote_nvml[] = {
#define NVML_FN(name, base, version, kind) (remote_function *)name,
#include "abi/generated/nvml_names.inc"
#undef NVML_FN
};
