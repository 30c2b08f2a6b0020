/* Memory of one process in another, by 64-byte handles and by pools. */
#include "simgpu/cuda/test/cuda.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void start(void) {
    CUcontext ctx;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
}

struct offer {
    CUipcMemHandle small, large;
    CUmemPoolPtrExportData pooled;
};

/* The exporting process; it lives until it is killed, or until it is told to free. */
static int exporter(int channel) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUdeviceptr unrelated, small, large, pooled;
    struct offer offer;
    CUmemoryPool pool;
    char word;
    int fd;

    start();
    OK(cuMemAlloc_v2(&unrelated, 1000));
    OK(cuMemAlloc_v2(&small, 1000));
    OK(cuMemAlloc_v2(&large, 3 * BLOCK));
    OK(cuMemsetD8_v2(small, 's', 1000));
    OK(cuMemsetD8_v2(large, 'l', 3 * BLOCK));
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemAllocFromPoolAsync(&pooled, 5000, pool, NULL));
    OK(cuMemsetD8_v2(pooled, 'p', 5000));
    OK(cuIpcGetMemHandle(&offer.small, small + 5));
    OK(cuIpcGetMemHandle(&offer.large, large));
    FAILS(cuIpcGetMemHandle(&offer.large, pooled), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolExportPointer(&offer.pooled, pooled));
    OK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    /* A process cannot open its own. */
    CUdeviceptr own;
    FAILS(cuIpcOpenMemHandle_v2(&own, offer.small, 1), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQUAL(write(channel, &offer, sizeof offer), (ssize_t)sizeof offer);
    cuda_send_fd(channel, fd);
    CHECK_EQUAL(read(channel, &word, 1), 1);
    OK(cuMemFree_v2(large));
    CHECK_EQUAL(write(channel, "f", 1), 1);
    for (;;) {
        pause();
    }
}

static char byte_at(CUdeviceptr address) {
    char byte = 0;

    OK(cuMemcpyDtoH_v2(&byte, address, 1));
    return byte;
}

static uint64_t used(void) {
    struct sg_instance *in = &sg_driver.instance;

    sg_state_lock(in);
    sg_reap(in);
    uint64_t bytes = sg_gpu_used(in, 0);
    sg_state_unlock(in);
    return bytes;
}

static void check_import(int channel, pid_t other) {
    CUdeviceptr small, again, large, pooled, gone;
    struct offer offer;
    CUmemoryPool pool;
    size_t bytes;
    char word;

    CHECK_EQUAL(read(channel, &offer, sizeof offer), (ssize_t)sizeof offer);
    int fd = cuda_receive_fd(channel);
    OK(cuIpcOpenMemHandle_v2(&small, offer.small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuIpcOpenMemHandle_v2(&again, offer.small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK_EQUAL(small, again);
    OK(cuIpcOpenMemHandle_v2(&large, offer.large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuMemGetAddressRange_v2(&gone, &bytes, large));
    CHECK_EQUAL(bytes, 3 * BLOCK);
    CHECK_EQUAL(byte_at(small + 999), 's');
    CHECK_EQUAL(byte_at(large + 3 * BLOCK - 1), 'l');
    OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(fd);
    FAILS(cuMemAllocFromPoolAsync(&gone, 1, pool, NULL), CUDA_ERROR_NOT_PERMITTED);
    OK(cuMemPoolImportPointer(&pooled, pool, &offer.pooled));
    CHECK_EQUAL(byte_at(pooled + 4999), 'p');
    CHECK_EQUAL(cuda_true_all(), 4 * MIB);
    /* Freed by the exporter, and then the exporter dead: the importer still has the memory. */
    uint64_t before = used();
    CHECK_EQUAL(write(channel, "g", 1), 1);
    CHECK_EQUAL(read(channel, &word, 1), 1);
    CHECK_EQUAL(used(), before);
    setting_kill(other);
    CHECK_EQUAL(used(), 4 * MIB + BLOCK + 3 * BLOCK + 32 * MIB);
    CHECK_EQUAL(byte_at(small), 's');
    CHECK_EQUAL(byte_at(large), 'l');
    CHECK_EQUAL(byte_at(pooled), 'p');
    FAILS(cuMemFree_v2(large), CUDA_ERROR_INVALID_VALUE);
    OK(cuIpcCloseMemHandle(large));
    CHECK_EQUAL(used(), 4 * MIB + BLOCK + 32 * MIB);
    OK(cuMemFreeAsync(pooled, NULL));
    CHECK_EQUAL(used(), 4 * MIB + BLOCK);
    OK(cuIpcCloseMemHandle(small));
    CHECK_EQUAL(used(), 4 * MIB + BLOCK);
    OK(cuIpcCloseMemHandle(small));
    CHECK_EQUAL(used(), 4 * MIB);
    FAILS(cuIpcCloseMemHandle(small), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuIpcOpenMemHandle_v2(&gone, offer.large, 1) != CUDA_SUCCESS);
    OK(cuMemPoolDestroy(pool));
}

int main(void) {
    sim_machine machine;
    int ends[2];

    setting_describe(&machine);
    setting_make(&machine);
    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pid_t other = fork();
    if (other == 0) {
        _exit(exporter(ends[1]));
    }
    start();
    check_import(ends[0], other);
    return 0;
}
