/*
 * What the driver's NVML reports about this process.
 */
#ifndef DIVVY_CUDA_MEMORY_MEASURE_H
#define DIVVY_CUDA_MEMORY_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/generated/page_layout.h"
#include "cuda/event.h"

/* Bytes that this process holds on the GPU with this PCI address or, if that is empty, UUID, as the
 * driver counts them. device is its number in the share. False if NVML is not there or does not show
 * this process: it runs in another pid namespace than the driver reports, or the machine hides the
 * figure. Takes microseconds to milliseconds, the first call longer: NVML is loaded then. */
bool measure_process(unsigned device, const char *place, const uint8_t uuid[16], uint64_t *bytes);

/* Whether NVML may be asked now. One who is told so asks. A process may ask eight times in a row and
 * then four times in a second: the answer takes a lock of the driver's that all processes on the
 * machine share. */
bool measure_allowed(void);

/* Devices of which a measurement would have been too early. It is made up for before an allocation
 * is decided: whoever measures listens. */
DV_HIDDEN extern uint32_t measure_due[DV_PAGE_DEVICES];
EVENT(measure_overdue, (unsigned device));
static inline void measure_refresh(unsigned device) {
    if (__builtin_expect(__atomic_load_n(&measure_due[device], __ATOMIC_RELAXED) != 0, 0)) {
        TELL(measure_overdue, (device));
    }
}

#endif
