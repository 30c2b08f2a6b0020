/* libnvidia-ml.so.1 of a client: every function of NVML. */
#include "remote/front/jump.inc"

    begin
#define NVML_FN(name, base, version, kind) jump name, divvy_remote_nvml
#include "abi/generated/nvml_names.inc"
