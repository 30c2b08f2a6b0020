/* Starts a session and opens the share, once per process. GPUs are looked up when a program first
 * asks for one.
 *
 * The share is opened before the driver is asked, so that a refused program leaves no driver
 * session behind and learns nothing. */
#include "nvml/gpus.h"

nvmlReturn_t nvmlInit(void) {
    nvmlReturn_t result = gpus_open();
    return result == NVML_SUCCESS ? DV_REAL(nvmlInit)() : result;
}

nvmlReturn_t nvmlInit_v2(void) {
    nvmlReturn_t result = gpus_open();
    return result == NVML_SUCCESS ? DV_REAL(nvmlInit_v2)() : result;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    nvmlReturn_t result = gpus_open();
    return result == NVML_SUCCESS ? DV_REAL(nvmlInitWithFlags)(flags) : result;
}

/* The one function that returns no status: a missing one would hand out dv_missing's number as an
 * address. */
const char *nvmlErrorString(nvmlReturn_t result) {
    return DV_LACKS(nvmlErrorString) ? "Unknown Error" : DV_REAL(nvmlErrorString)(result);
}
