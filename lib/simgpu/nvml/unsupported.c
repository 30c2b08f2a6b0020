/* Every NVML name that nothing here defines answers that the device does not support it, which
 * programs expect of older models. The strong definitions of the other files take precedence.
 * Prototypes are left out on purpose: all of these names are the one function below. */
#include "abi/nvml/types.h"

#include <stdbool.h>

bool nvml_in_use(void);

__attribute__((used)) static nvmlReturn_t unsupported(void) {
    return nvml_in_use() ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_UNINITIALIZED;
}

#define NVML_FN(name, base, version, kind)                                                         \
    extern nvmlReturn_t name(void)                                                                 \
        __attribute__((weak, alias("unsupported"), visibility("default")));
#include "abi/generated/nvml_names.inc"
