/* Kernels that go through memory without changing it, and marks by which its contents are known. */
#ifndef GPUBENCH_TOUCH_H
#define GPUBENCH_TOUCH_H

#include "driver.h"

/* `sweep` goes over memory as often as the larger of reads and writes says; `scatter` goes to so
 * many random places. Both then wait until `ns` have passed since the block began. */
struct touching {
    CUfunction sweep, scatter;
};
CUresult touching_load(struct touching *touching);

/* What one such kernel goes through. */
struct touched {
    CUdeviceptr address;
    uint64_t bytes, ns;
    unsigned reads, writes, order, seed;
};
CUresult touch(CUfunction kernel, struct touched what, CUstream stream);

/* Writes a mark that follows from the seed into each 2 MiB of memory, or compares it: `changed` grows
 * by the bytes that differ. A mark takes a page of the host where memory is simulated; all of the
 * memory would take as much as a GPU has. */
CUresult marks_write(CUdeviceptr address, uint64_t bytes, uint64_t seed);
CUresult marks_compare(CUdeviceptr address, uint64_t bytes, uint64_t seed, uint64_t *changed);

#endif
