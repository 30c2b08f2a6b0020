#include "memory.h"

#include <string.h>

#define ROW_BYTES 65536u
#define VMM_GRANULE (2u << 20)

enum kind kind_named(const char *name) {
    static const char *const names[] = {"linear", "async", "managed", "pitch", "vmm", "array"};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            return (enum kind)i;
        }
    }
    return KIND_UNKNOWN;
}

static CUresult allocate_vmm(uint64_t bytes, int device, struct memory *memory) {
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    uint64_t rounded = (bytes + VMM_GRANULE - 1) / VMM_GRANULE * VMM_GRANULE;
    return driver.cuMemCreate(&memory->handle, rounded, &properties, 0);
}

static CUresult allocate_array(uint64_t bytes, struct memory *memory) {
    CUDA_ARRAY3D_DESCRIPTOR shape;
    memset(&shape, 0, sizeof shape);
    shape.Width = ROW_BYTES / sizeof(float) / 4;
    shape.Height = (size_t)(bytes + ROW_BYTES - 1) / ROW_BYTES;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 4;
    return driver.cuArray3DCreate_v2(&memory->array, &shape);
}

CUresult memory_allocate(enum kind kind, uint64_t bytes, int device, struct memory *memory) {
    size_t pitch;
    memory->kind = kind;
    switch (kind) {
    case KIND_LINEAR:
        return driver.cuMemAlloc_v2(&memory->pointer, bytes);
    case KIND_ASYNC:
        return driver.cuMemAllocAsync(&memory->pointer, bytes, NULL);
    case KIND_MANAGED:
        return driver.cuMemAllocManaged(&memory->pointer, bytes, CU_MEM_ATTACH_GLOBAL);
    case KIND_PITCH:
        return driver.cuMemAllocPitch_v2(&memory->pointer, &pitch, ROW_BYTES,
                                         (size_t)(bytes + ROW_BYTES - 1) / ROW_BYTES, 4);
    case KIND_VMM:
        return allocate_vmm(bytes, device, memory);
    case KIND_ARRAY:
        return allocate_array(bytes, memory);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult memory_free(struct memory *memory) {
    switch (memory->kind) {
    case KIND_ASYNC:
        return driver.cuMemFreeAsync(memory->pointer, NULL);
    case KIND_VMM:
        return driver.cuMemRelease(memory->handle);
    case KIND_ARRAY:
        return driver.cuArrayDestroy(memory->array);
    default:
        return driver.cuMemFree_v2(memory->pointer);
    }
}
