/* Every name that the driver exports and nothing here defines answers that it is not supported. The
 * strong definitions of the other files take precedence. Prototypes are left out on purpose: all of
 * these names are the one function below. */
#include "abi/cuda/types.h"

__attribute__((used)) static CUresult unsupported(void) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

#define CUDA_FN(name, base, since, variant, kind, hooked)                                          \
    extern CUresult name(void) __attribute__((weak, alias("unsupported"), visibility("default")));
#include "abi/generated/cuda_names.inc"
