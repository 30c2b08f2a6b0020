/* A driver for tests: four GPUs whose figures a test can set, in a library of its own.
 *
 * It lacks some names on purpose and has one that our description does not know. */
#ifndef DIVVY_NVML_TEST_DRIVER_H
#define DIVVY_NVML_TEST_DRIVER_H

#include "abi/generated/nvml_functions.h"

#include <stdatomic.h>
#include <stdbool.h>

#define FAKE_GPUS 4u
#define FAKE_MIG FAKE_GPUS /* index of a MIG instance that lies on GPU 1 */
#define FAKE_PROCESSES 40u
#define FAKE_TOTAL (80ull << 30) /* bytes of each GPU */

struct fake_process {
    unsigned int gpu;
    unsigned int pid;
    unsigned long long memory; /* bytes */
    unsigned int sm, encoder;  /* percent; no sample at all if both are 0 */
};

struct fake_driver {
    _Atomic unsigned int sessions;      /* nvmlInit less nvmlShutdown */
    unsigned long long used[FAKE_GPUS]; /* bytes */
    struct fake_process processes[FAKE_PROCESSES];
    unsigned int process_count;
    bool no_samples;      /* the driver cannot tell processes apart */
    bool lost[FAKE_GPUS]; /* the GPU fell off the bus */
    bool met_ourselves;   /* a call that the driver makes to itself came out changed */
};

/* State and handles of the driver. */
__attribute__((visibility("default"))) struct fake_driver *fake_driver(void);
__attribute__((visibility("default"))) nvmlDevice_t fake_handle(unsigned int index);

/* UUID of GPU `index`, the same bytes that the driver spells in nvmlDeviceGetUUID. */
static inline void fake_uuid(unsigned int index, unsigned char uuid[16]) {
    for (unsigned int at = 0; at < 16; at++) {
        uuid[at] = (unsigned char)(0xa0u + 16u * index + at);
    }
}

#endif
