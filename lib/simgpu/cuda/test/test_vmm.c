/* Virtual memory management, also between processes. */
#define _GNU_SOURCE
#include "simgpu/cuda/test/cuda.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static CUmemAllocationProp on_device(int id) {
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, id}};
}

static const CUmemAccessDesc read_write = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                           CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void check_life(void) {
    CUmemAllocationProp prop = on_device(0);
    CUmemGenericAllocationHandle h, again;
    CUdeviceptr at;
    size_t granularity;
    int value = 42, back = 0;

    OK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_EQUAL(granularity, BLOCK);
    FAILS(cuMemCreate(&h, BLOCK + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemCreate(&h, 2 * GPU_BYTES, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemCreate(&h, 4 * BLOCK, &prop, 0));
    CHECK_EQUAL(cuda_true(SG_VMM), 4 * BLOCK);
    OK(cuMemAddressReserve(&at, 16 * BLOCK, 0, 0, 0));
    FAILS(cuMemMap(at, 5 * BLOCK, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(at + 2 * BLOCK, 4 * BLOCK, 0, h, 0));
    FAILS(cuMemMap(at + 5 * BLOCK, BLOCK, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
    /* Mapped is not yet accessible. */
    FAILS(cuMemcpyHtoD_v2(at + 2 * BLOCK, &value, 4), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemSetAccess(at + 2 * BLOCK, 4 * BLOCK, &read_write, 1));
    OK(cuMemcpyHtoD_v2(at + 3 * BLOCK, &value, 4));
    OK(cuMemRelease(h));
    FAILS(cuMemRelease(h), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + 2 * BLOCK)));
    CHECK_EQUAL(again, h);
    /* A second mapping shows the same memory. */
    OK(cuMemMap(at + 8 * BLOCK, BLOCK, BLOCK, h, 0));
    OK(cuMemSetAccess(at + 8 * BLOCK, BLOCK, &read_write, 1));
    OK(cuMemcpyDtoH_v2(&back, at + 8 * BLOCK, 4));
    CHECK_EQUAL(back, 42);
    FAILS(cuMemUnmap(at + 2 * BLOCK, BLOCK), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemAddressFree(at, 16 * BLOCK), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(at + 2 * BLOCK, 4 * BLOCK));
    OK(cuMemRelease(h));
    CHECK_EQUAL(cuda_true(SG_VMM), 4 * BLOCK);
    OK(cuMemUnmap(at + 8 * BLOCK, BLOCK));
    CHECK_EQUAL(cuda_true(SG_VMM), 0);
    FAILS(cuMemUnmap(at + 8 * BLOCK, BLOCK), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(at, 16 * BLOCK));
    FAILS(cuMemAddressFree(at, 16 * BLOCK), CUDA_ERROR_INVALID_VALUE);
}

/* Memory is charged where it lies, whatever context is current. */
static void check_location(void) {
    CUmemAllocationProp prop = on_device(2);
    CUmemGenericAllocationHandle h;
    struct sg_instance *in = &sg_driver.instance;

    OK(cuMemCreate(&h, BLOCK, &prop, 0));
    CHECK_EQUAL(cuda_true(SG_VMM), 0);
    CHECK_EQUAL(in->state->clients[in->id].bytes[2][SG_VMM], BLOCK);
    OK(cuMemRelease(h));
    prop.location.id = 77;
    FAILS(cuMemCreate(&h, BLOCK, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
}

/* Exports memory, says so, and dies without any clean-up while its descriptor is in the socket. */
static int exporter(int channel) {
    CUmemAllocationProp prop = on_device(0);
    CUmemGenericAllocationHandle h;
    CUcontext ctx;
    CUdeviceptr at;
    int fd, value = 4711;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    OK(cuMemCreate(&h, 2 * BLOCK, &prop, 0));
    OK(cuMemAddressReserve(&at, 2 * BLOCK, 0, 0, 0));
    OK(cuMemMap(at, 2 * BLOCK, 0, h, 0));
    OK(cuMemSetAccess(at, 2 * BLOCK, &read_write, 1));
    OK(cuMemcpyHtoD_v2(at + BLOCK, &value, 4));
    OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    cuda_send_fd(channel, fd);
    return 0;
}

static uint64_t used(void) {
    struct sg_instance *in = &sg_driver.instance;

    sg_state_lock(in);
    sg_reap(in);
    uint64_t bytes = sg_gpu_used(in, 0);
    sg_state_unlock(in);
    return bytes;
}

static void check_import(int channel) {
    CUmemGenericAllocationHandle h, twice;
    CUdeviceptr at;
    int value = 0;

    /* The exporter is dead, its context freed; the descriptor in flight holds the memory. */
    CHECK_EQUAL(used(), 4 * MIB + 2 * BLOCK);
    int fd = cuda_receive_fd(channel);
    OK(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    OK(cuMemImportFromShareableHandle(&twice, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    OK(cuMemRelease(twice));
    OK(cuMemAddressReserve(&at, 2 * BLOCK, 0, 0, 0));
    OK(cuMemMap(at, 2 * BLOCK, 0, h, 0));
    OK(cuMemSetAccess(at, 2 * BLOCK, &read_write, 1));
    OK(cuMemcpyDtoH_v2(&value, at + BLOCK, 4));
    CHECK_EQUAL(value, 4711);
    OK(cuMemRelease(h));
    CHECK_EQUAL(used(), 4 * MIB + 2 * BLOCK);
    CHECK_EQUAL(cuda_true(SG_VMM), 0);
    OK(cuMemUnmap(at, 2 * BLOCK));
    CHECK_EQUAL(used(), 4 * MIB);
    OK(cuMemAddressFree(at, 2 * BLOCK));
    FAILS(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)0,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
          CUDA_ERROR_INVALID_VALUE);
}

int main(void) {
    int ends[2], status;
    sim_machine machine;
    CUcontext ctx;

    setting_describe(&machine);
    setting_make(&machine);
    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pid_t child = fork();
    if (child == 0) {
        _exit(exporter(ends[1]));
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    check_import(ends[0]);
    check_life();
    check_location();
    CHECK_EQUAL(cuda_true_all(), 4 * MIB);
    return 0;
}
