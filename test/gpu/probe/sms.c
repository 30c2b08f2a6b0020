/*
 * The command `sms`: how many multiprocessors the first device has for this process. Of a client of
 * the multi-process service these are the ones that it may occupy.
 */
#include "probe.h"

#include <stdio.h>

int command_sms(void) {
    CUdevice device = 0;
    int count = 0;
    if (!open_cuda()) {
        return 3;
    }
    CUresult result =
        cuda.cuDeviceGetAttribute == NULL ? CUDA_ERROR_NOT_SUPPORTED : start_cuda(&device);
    if (result == CUDA_SUCCESS) {
        result =
            cuda.cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    }
    printf("{\"command\":\"sms\",\"result\":\"%s\",\"code\":%d,\"multiprocessors\":%d}\n",
           result_name(result), (int)result, count);
    return result == CUDA_SUCCESS ? 0 : 1;
}
