/*
 * What the driver's NVML reports about this process.
 */
#ifndef DIVVY_CUDA_MEMORY_MEASURE_H
#define DIVVY_CUDA_MEMORY_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes that this process holds on the GPU with this PCI address or, if that is empty, UUID, as the driver counts them. False if NVML
 * is not there or does not show this process: it runs in another pid namespace than the driver
 * reports, or the machine hides the figure. Takes microseconds to milliseconds, the first call
 * longer: NVML is loaded then. */
bool measure_process(const char *place, const uint8_t uuid[16], uint64_t *bytes);

#endif
