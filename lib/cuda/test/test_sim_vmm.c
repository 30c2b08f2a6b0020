/* Mapped memory on simgpu: charged to the GPU it is on as long as anything holds it. */
#include "abi/generated/machine_layout.h"
#include "cuda/test/sim.h"

#include <unistd.h>

#define LIMIT (128 * MIB)
#define SIZE (16 * MIB)

static struct setting s;

static uint64_t used_on(unsigned device) {
    return used_bytes(s.share, device);
}

static void check_account(void) {
    CHECK_EQUAL(used_on(0), sim_used(&s, 0));
    CHECK_EQUAL(used_on(1), sim_used(&s, 1));
    CHECK_EQUAL(pending_bytes(s.share, 0), 0);
}

static CUmemAllocationProp on_gpu(int gpu) {
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu}};
}

static CUmemGenericAllocationHandle create(int gpu, size_t bytes) {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = on_gpu(gpu);
    CHECK_EQUAL(CUDA(&s, cuMemCreate)(&handle, bytes, &prop, 0), CUDA_SUCCESS);
    return handle;
}

static CUdeviceptr reserve(size_t bytes) {
    CUdeviceptr address;
    CHECK_EQUAL(CUDA(&s, cuMemAddressReserve)(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    return address;
}

static void map(CUdeviceptr address, size_t bytes, size_t offset,
                CUmemGenericAllocationHandle handle) {
    CHECK_EQUAL(CUDA(&s, cuMemMap)(address, bytes, offset, handle, 0), CUDA_SUCCESS);
}

static void unmap(CUdeviceptr address, size_t bytes) {
    CHECK_EQUAL(CUDA(&s, cuMemUnmap)(address, bytes), CUDA_SUCCESS);
}

static void release(CUmemGenericAllocationHandle handle) {
    CHECK_EQUAL(CUDA(&s, cuMemRelease)(handle), CUDA_SUCCESS);
}

/* The GPU that is named is charged, not that of the current context. */
static void named_gpu_is_charged(void) {
    uint64_t here = used_on(0), there = used_on(1);
    CUmemGenericAllocationHandle handle = create(1, SIZE);
    check_account();
    CHECK_EQUAL(used_on(0), here);
    CHECK_EQUAL(used_on(1), there + SIZE);
    release(handle);
    check_account();
    CHECK_EQUAL(used_on(1), there);
}

static void mapping_keeps_what_is_released(void) {
    CUdeviceptr first = reserve(2 * SIZE), second = reserve(SIZE);
    CUmemGenericAllocationHandle a = create(0, SIZE), b = create(0, SIZE);
    uint64_t both = used_on(0);
    map(first, SIZE, 0, a);
    map(first + SIZE, SIZE, 0, b);
    map(second, SIZE, 0, a);
    release(a);
    release(b);
    check_account();
    CHECK_EQUAL(used_on(0), both);
    unmap(first, 2 * SIZE); /* two mappings in one call */
    check_account();
    CHECK_EQUAL(used_on(0), both - SIZE);
    unmap(second, SIZE);
    check_account();
    CHECK_EQUAL(used_on(0), both - 2 * SIZE);
    CHECK_EQUAL(CUDA(&s, cuMemAddressFree)(first, 2 * SIZE), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAddressFree)(second, SIZE), CUDA_SUCCESS);
}

static void retained_handle_keeps_it_too(void) {
    CUdeviceptr address = reserve(SIZE);
    CUmemGenericAllocationHandle handle = create(0, SIZE), again;
    uint64_t before = used_on(0);
    map(address, SIZE, 0, handle);
    CHECK_EQUAL(CUDA(&s, cuMemRetainAllocationHandle)(&again, (void *)(uintptr_t)address),
                CUDA_SUCCESS);
    unmap(address, SIZE);
    release(handle);
    check_account();
    CHECK_EQUAL(used_on(0), before);
    release(again);
    check_account();
    CHECK_EQUAL(used_on(0), before - SIZE);
    CHECK_EQUAL(CUDA(&s, cuMemAddressFree)(address, SIZE), CUDA_SUCCESS);
}

static void creating_and_releasing_is_no_way_around(void) {
    CUmemAllocationProp prop = on_gpu(0);
    CUmemGenericAllocationHandle handle = 4711;
    CUdeviceptr address = reserve(2 * LIMIT);
    size_t mapped = 0;
    while (CUDA(&s, cuMemCreate)(&handle, SIZE, &prop, 0) == CUDA_SUCCESS) {
        CHECK(mapped < LIMIT);
        map(address + mapped, SIZE, 0, handle);
        release(handle);
        mapped += SIZE;
        check_account();
    }
    CHECK_EQUAL(CUDA(&s, cuMemCreate)(&handle, SIZE, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(sim_peak(&s, 0) <= LIMIT);
    unmap(address, mapped);
    check_account();
    CHECK_EQUAL(used_on(0), SIM_CONTEXT);
    CHECK_EQUAL(CUDA(&s, cuMemAddressFree)(address, 2 * LIMIT), CUDA_SUCCESS);
}

static void errors_change_nothing(void) {
    CUmemGenericAllocationHandle handle = create(0, SIZE);
    CUdeviceptr address = reserve(SIZE);
    CHECK(CUDA(&s, cuMemMap)(address, 2 * SIZE, 0, handle, 0) != CUDA_SUCCESS);
    CHECK(CUDA(&s, cuMemUnmap)(address, SIZE) != CUDA_SUCCESS);
    map(address, SIZE, 0, handle);
    /* Nobody looks for mappings at all the addresses there are. */
    CHECK(CUDA(&s, cuMemUnmap)(address, (SIZE_MAX - address) / SIZE * SIZE) != CUDA_SUCCESS);
    check_account();
    unmap(address, SIZE);
    CHECK(CUDA(&s, cuMemRelease)(0) != CUDA_SUCCESS);
    CHECK(CUDA(&s, cuMemCreate)(NULL, SIZE, NULL, 0) != CUDA_SUCCESS);
    check_account();
    release(handle);
    CHECK(CUDA(&s, cuMemRelease)(handle) != CUDA_SUCCESS);
    check_account();
    CHECK_EQUAL(CUDA(&s, cuMemAddressFree)(address, SIZE), CUDA_SUCCESS);
}

/* An exported descriptor holds the memory when nothing else does. */
static void descriptor_keeps_it(void) {
    int fd = -1;
    uint64_t before = used_on(0);
    CUmemGenericAllocationHandle handle = create(0, SIZE), imported, more;
    CUdeviceptr address = reserve(SIZE);
    CHECK_EQUAL(CUDA(&s, cuMemExportToShareableHandle)(&fd, handle,
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                CUDA_SUCCESS);
    release(handle);
    CHECK_EQUAL(used_on(0), before + SIZE);

    /* The share is charged for it already. */
    CHECK_EQUAL(CUDA(&s, cuMemImportFromShareableHandle)(&imported, (void *)(intptr_t)fd,
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                CUDA_SUCCESS);
    map(address, SIZE, 0, imported);
    check_account();
    CHECK_EQUAL(used_on(0), before + SIZE);
    CHECK(close(fd) == 0);
    unmap(address, SIZE);
    release(imported);
    CHECK_EQUAL(CUDA(&s, cuMemAddressFree)(address, SIZE), CUDA_SUCCESS);

    /* Closing is not seen; what needs the room finds out. */
    CUmemAllocationProp prop = on_gpu(0);
    CHECK_EQUAL(CUDA(&s, cuMemCreate)(&more, LIMIT - before, &prop, 0), CUDA_SUCCESS);
    check_account();
    release(more);
    check_account();
}

int main(void) {
    sim_dead_handles = SIM_DEAD_COUNT; /* one test releases a handle twice */
    sim_make(&s, 2, LIMIT);
    setting_context(&s);
    named_gpu_is_charged();
    mapping_keeps_what_is_released();
    retained_handle_keeps_it_too();
    creating_and_releasing_is_no_way_around();
    errors_change_nothing();
    descriptor_keeps_it();
    return 0;
}
