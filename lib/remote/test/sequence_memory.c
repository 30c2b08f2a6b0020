/* Calls that make memory, and ask what pointers are. */
#include "remote/test/sequence.h"

static size_t draw_size(void) {
    static const size_t sizes[] = {
        0, 1, 511, 512, 4096, 65536, MIB, MIB + 1, 3 * MIB, 17 * MIB, UINT64_C(1) << 40};

    return sizes[draw(sizeof sizes / sizeof *sizes)];
}

/* A place for an allocation; MEMORIES if all are held. */
static unsigned place_for_memory(void) {
    unsigned first = (unsigned)draw(MEMORIES);

    for (unsigned i = 0; i < MEMORIES; i++) {
        if (!world.memory[(first + i) % MEMORIES].held) {
            return (first + i) % MEMORIES;
        }
    }
    return MEMORIES;
}

/* Of allocations that follow each other at one address only the last is held. */
static void freed(CUdeviceptr address) {
    for (unsigned i = 0; i < MEMORIES; i++) {
        if (world.memory[i].address == address) {
            world.memory[i].held = false;
        }
    }
}

/* A worker waits for the GPU at other times than the program, and so its driver gives memory back at others: which address an
 * allocation has again may differ. What is gone is forgotten before that. */
static void forget_gone(void) {
    int type;

    for (unsigned i = 0; sequence_has_worker && i < MEMORIES; i++) {
        CUdeviceptr at = world.memory[i].address;
        if (at && CALL(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) !=
                      CUDA_SUCCESS) {
            world.memory[i].address = 0;
            world.memory[i].held = false;
        }
    }
}

static CUresult allocate(void) {
    CUdeviceptr address = 0, *to = draw(16) ? &address : NULL;
    size_t size = draw_size(), pitch = 0, width = draw(5000), height = draw(40);
    unsigned place = place_for_memory();
    CUmemoryPool pool = NULL;
    CUstream stream = (CUstream)draw(3);
    CUresult result;

    if (place == MEMORIES) {
        return CUDA_SUCCESS;
    }
    forget_gone();
    switch (draw(6)) {
    case 0:
        result = CALL(cuMemAllocPitch_v2, to, draw(8) ? &pitch : NULL, width, height,
                      (unsigned)draw(3) * 4 + 4);
        see(pitch);
        break;
    case 1:
        result = draw(2) ? CALL(cuMemAllocAsync, to, size, stream)
                         : CALL(cuMemAllocAsync_ptsz, to, size, stream);
        break;
    case 2:
        result = CALL(cuDeviceGetDefaultMemPool, &pool, (CUdevice)draw(DEVICES));
        result = draw(2) ? CALL(cuMemAllocFromPoolAsync, to, size, draw(8) ? pool : NULL, stream)
                         : CALL(cuMemAllocFromPoolAsync_ptsz, to, size, pool, stream);
        break;
    case 3:
        size = 2 * MIB * draw(4) + (draw(6) == 0);
        result = CALL(cuMemAddressReserve, to, size, 0, draw(4) ? 0 : draw(100), draw(9) == 0);
        break;
    default:
        result = CALL(cuMemAlloc_v2, to, size);
    }
    see(address != 0);
    if (result == CUDA_SUCCESS) {
        world.memory[place].address = address;
        world.memory[place].size = size;
        world.memory[place].held = true;
    }
    return result;
}

static CUdeviceptr draw_address(void) {
    uint64_t d = draw(20);

    if (d == 0) {
        return 0;
    }
    unsigned place = (unsigned)draw(MEMORIES);
    for (unsigned i = 0; !world.memory[place].address && i < MEMORIES; i++) {
        place = (place + 1) % MEMORIES;
    }
    CUdeviceptr address = world.memory[place].address;
    return address && d < 4 ? address + draw(3000) : address;
}

static CUresult release_memory(void) {
    CUdeviceptr address = draw_address();
    CUstream stream = (CUstream)draw(3);
    size_t size = 2 * MIB * draw(4);
    CUresult result;

    switch (draw(5)) {
    case 0:
        result = draw(2) ? CALL(cuMemFreeAsync, address, stream)
                         : CALL(cuMemFreeAsync_ptsz, address, stream);
        break;
    case 1:
        for (unsigned i = 0; i < MEMORIES && draw(8); i++) {
            if (world.memory[i].address == address) {
                size = world.memory[i].size;
            }
        }
        result = CALL(cuMemAddressFree, address, size);
        break;
    default:
        result = CALL(cuMemFree_v2, address);
    }
    if (result == CUDA_SUCCESS) {
        freed(address);
    }
    return result;
}

/* Physical memory at reserved addresses. */
static CUresult map(void) {
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUdeviceptr address = draw_address();
    size_t granularity = 0;

    switch (draw(4)) {
    case 0:
        return world.block ? CUDA_SUCCESS : CALL(cuMemCreate, &world.block, 2 * MIB, &prop, 0);
    case 1: {
        CUresult result = CALL(cuMemGetAllocationGranularity, draw(8) ? &granularity : NULL,
                               draw(8) ? &prop : NULL, (CUmemAllocationGranularity_flags)draw(3));
        see(granularity);
        return result;
    }
    case 2:
        return world.block ? CALL(cuMemMap, address, 2 * MIB, 0, world.block, 0) : CUDA_SUCCESS;
    default:
        return CALL(cuMemUnmap, address, 2 * MIB);
    }
}

/* What is the same in both processes: addresses are told by how far they are from the one that was asked about. Numbers of
 * buffers are only compared with zero, and what is not served is left out. */
void see_attribute(CUpointer_attribute attribute, uint64_t value, CUdeviceptr address) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        see_context((CUcontext)value);
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        see(value ? value - address : 1);
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        see(value != 0);
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: {
        uint64_t is = value ? 9 : 0;
        for (CUdevice d = 0; value && d < DEVICES; d++) {
            CUmemoryPool pool = NULL;
            CALL(cuDeviceGetDefaultMemPool, &pool, d);
            is = (uint64_t)pool == value ? (uint64_t)d + 1 : is;
        }
        see(is);
        break;
    }
    default:
        see(value);
    }
}

static CUresult ask_pointer(void) {
    CUdeviceptr address = draw(10) ? draw_address() : (CUdeviceptr)(uintptr_t)&world;
    CUpointer_attribute attribute = (CUpointer_attribute)draw(23);
    uint64_t value = 0;
    CUresult result =
        CALL(cuPointerGetAttribute, draw(16) ? (void *)&value : NULL, attribute, address);

    if (result == CUDA_SUCCESS) {
        see_attribute(attribute, value, address);
    }
    return result;
}

static CUresult ask_pointers(void) {
    CUdeviceptr address = draw(10) ? draw_address() : (CUdeviceptr)(uintptr_t)&world;
    CUpointer_attribute attributes[6];
    uint64_t values[6];
    void *data[6];
    unsigned count = (unsigned)draw(7);

    for (unsigned i = 0; i < 6; i++) {
        attributes[i] = (CUpointer_attribute)(1 + draw(draw(20) ? 21 : 22));
        values[i] = UINT64_C(0xabababababababab);
        data[i] = &values[i];
    }
    CUresult result =
        CALL(cuPointerGetAttributes, count, draw(20) ? attributes : NULL, data, address);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        bool narrow = values[i] >> 32 == 0xabababab;
        see(narrow);
        see_attribute(attributes[i], narrow ? (uint32_t)values[i] : values[i], address);
    }
    return result;
}

static CUresult ask_range(void) {
    CUdeviceptr address = draw_address(), base = 0;
    size_t size = 0;
    CUresult result =
        CALL(cuMemGetAddressRange_v2, draw(4) ? &base : NULL, draw(4) ? &size : NULL, address);

    see(base ? address - base : 1);
    see(size);
    return result;
}

operation *const memory_operations[MEMORY_OPERATIONS] = {
    allocate, allocate,    allocate,    release_memory, release_memory,
    map,      ask_pointer, ask_pointer, ask_pointers,   ask_range,
};
