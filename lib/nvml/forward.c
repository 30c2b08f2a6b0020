/* Every name of NVML, leading to the driver unless a file beside this one defines it. */
#include "abi/nvml_types.h"
#include "common/substitute.h"

#define NVML_FN(name, base, version, kind) DV_FORWARD(name)
#include "abi/nvml_names.inc"
#undef NVML_FN

int dv_missing(void) {
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

__attribute__((constructor)) static void find_driver(void) {
    dv_substitute("libnvidia-ml-real.so.1");
}
