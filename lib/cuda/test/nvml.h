#ifndef DIVVY_CUDA_TEST_NVML_H
#define DIVVY_CUDA_TEST_NVML_H

#include <stdint.h>

/* Found in the library by the name fake_nvml. */
struct fake_nvml {
    uint64_t held; /* bytes of this process; UINT64_MAX: not available */
    int hidden;    /* the process is not shown */
    int client;    /* it is shown in the list of MPS clients alone */
    int questions; /* calls that ask about a GPU */
};

#endif
