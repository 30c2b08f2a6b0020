/* Where the parameters of a kernel are, as the driver tells it. */
#include "remote/worker/graphs.h"

static CUresult place_of(const struct remote_cuda_driver *cuda, CUfunction function,
                         CUkernel kernel, size_t index, size_t *at, size_t *size) {
    if (kernel) {
        return cuda->cuKernelGetParamInfo ? cuda->cuKernelGetParamInfo(kernel, index, at, size)
                                          : CUDA_ERROR_NOT_SUPPORTED;
    }
    return cuda->cuFuncGetParamInfo ? cuda->cuFuncGetParamInfo(function, index, at, size)
                                    : CUDA_ERROR_NOT_SUPPORTED;
}

bool node_layout(const struct remote_cuda_driver *cuda, CUfunction function, CUkernel kernel,
                 struct node_place *places, size_t *count, size_t *bytes) {
    size_t i = 0, end = 0, at, size;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    if (!function && !kernel) {
        return false;
    }
    while (i < NODE_MOST_PLACES &&
           (result = place_of(cuda, function, kernel, i, &at, &size)) == CUDA_SUCCESS) {
        if (size > NODE_MOST_BYTES || at > NODE_MOST_BYTES - size) {
            return false;
        }
        places[i++] = (struct node_place){(uint32_t)at, (uint32_t)size};
        end = at + size > end ? at + size : end;
    }
    *count = i;
    *bytes = end;
    /* The driver says so after the last. */
    return result == CUDA_ERROR_INVALID_VALUE;
}
