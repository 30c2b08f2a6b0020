/* One allocation of any kind the driver offers, so that commands need not care which. */
#ifndef GPUBENCH_MEMORY_H
#define GPUBENCH_MEMORY_H

#include "driver.h"

enum kind { KIND_LINEAR, KIND_ASYNC, KIND_MANAGED, KIND_PITCH, KIND_VMM, KIND_ARRAY, KIND_UNKNOWN };

struct memory {
    enum kind kind;
    union {
        CUdeviceptr pointer;
        CUmemGenericAllocationHandle handle;
        CUarray array;
    };
};

enum kind kind_named(const char *name);

/* Allocates about `bytes`: VMM sizes are rounded up to 2 MiB, arrays and pitched memory to whole
 * rows. */
CUresult memory_allocate(enum kind kind, uint64_t bytes, int device, struct memory *memory);
CUresult memory_free(struct memory *memory);

#endif
