/* libcuda.so.1 of a client: every function of the driver. */
#include "remote/front/jump.inc"

    begin
#define CUDA_FN(name, base, since, variant, kind, hooked) jump name, divvy_remote_cuda
#include "abi/generated/cuda_names.inc"
