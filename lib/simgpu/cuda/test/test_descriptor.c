/* Memory as file descriptors: what they look like, and how long they keep it. */
#define _GNU_SOURCE
#include "simgpu/cuda/test/cuda.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t used(void) {
    struct sg_instance *in = &sg_driver.instance;

    sg_state_lock(in);
    sg_reap(in);
    uint64_t bytes = sg_gpu_used(in, 0);
    sg_state_unlock(in);
    return bytes - 4 * MIB; /* the context's */
}

static CUmemGenericAllocationHandle create(size_t bytes) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle h;

    OK(cuMemCreate(&h, bytes, &prop, 0));
    return h;
}

static int export(CUmemGenericAllocationHandle h) {
    int fd = -1;

    OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return fd;
}

static int range_export(CUdeviceptr at, size_t bytes) {
    int fd = -1;

    OK(cuMemGetHandleForAddressRange(&fd, at, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    return fd;
}

/* As on a card, where each is a new opening of the control device. */
static void all_are_one_file(void) {
    CUmemGenericAllocationHandle a = create(BLOCK), b = create(2 * BLOCK);
    struct stat of_a, of_b;
    int first = export(a), second = export(b);

    CHECK(fstat(first, &of_a) == 0 && fstat(second, &of_b) == 0);
    CHECK_EQUAL(of_a.st_dev, of_b.st_dev);
    CHECK_EQUAL(of_a.st_ino, of_b.st_ino);
    OK(cuMemRelease(a));
    OK(cuMemRelease(b));
    CHECK_EQUAL(used(), 3 * BLOCK);
    close(first);
    CHECK_EQUAL(used(), 2 * BLOCK);
    close(second);
    CHECK_EQUAL(used(), 0);
}

/* What a program does to its descriptor says nothing about the memory, but the last close. */
static void copies_keep_it(void) {
    CUmemGenericAllocationHandle h = create(BLOCK);
    int channel[2], fd = export(h), copy = dup(fd);
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 1ll << 61, .l_len = 1};

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
    CHECK(flock(fd, LOCK_SH) == 0 && flock(fd, LOCK_UN) == 0);
    CHECK(fcntl(fd, F_OFD_SETLK, &lock) == 0);
    lock.l_type = F_UNLCK;
    CHECK(fcntl(fd, F_OFD_SETLK, &lock) == 0);
    OK(cuMemRelease(h));
    CHECK_EQUAL(cuda_true(SG_VMM), 0); /* the process holds it no more */
    close(fd);
    CHECK_EQUAL(used(), BLOCK);
    cuda_send_fd(channel[0], copy);
    close(copy);
    close(channel[0]);
    CHECK_EQUAL(used(), BLOCK);
    close(channel[1]); /* unread */
    CHECK_EQUAL(used(), 0);
}

static void what_was_let_go_can_be_had_again(void) {
    CUmemGenericAllocationHandle h = create(BLOCK), again;
    int fd = export(h);

    OK(cuMemRelease(h));
    OK(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CHECK_EQUAL(cuda_true(SG_VMM), 0); /* an importer now */
    close(fd);
    CHECK_EQUAL(used(), BLOCK);
    OK(cuMemRelease(again));
    CHECK_EQUAL(used(), 0);
    CHECK_EQUAL(cuda_true(SG_VMM), 0);
}

static void dma_buf_keeps_linear_memory(void) {
    CUdeviceptr at;

    OK(cuMemAlloc_v2(&at, 3 * BLOCK));
    int fd = range_export(at + 4096, BLOCK);
    OK(cuMemFree_v2(at));
    CHECK_EQUAL(used(), 3 * BLOCK);
    close(fd);
    CHECK_EQUAL(used(), 0);
}

static void dma_buf_keeps_all_mappings(void) {
    CUmemGenericAllocationHandle a = create(BLOCK), b = create(BLOCK);
    CUdeviceptr at;
    int fd;

    OK(cuMemAddressReserve(&at, 3 * BLOCK, 0, 0, 0));
    OK(cuMemMap(at, BLOCK, 0, a, 0));
    FAILS(cuMemGetHandleForAddressRange(&fd, at, 2 * BLOCK, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
          CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(at + BLOCK, BLOCK, 0, b, 0));
    fd = range_export(at, 2 * BLOCK);
    OK(cuMemUnmap(at, 2 * BLOCK));
    OK(cuMemRelease(a));
    OK(cuMemRelease(b));
    OK(cuMemAddressFree(at, 3 * BLOCK));
    CHECK_EQUAL(used(), 2 * BLOCK);
    close(fd);
    CHECK_EQUAL(used(), 0);
}

static void wrong_ranges_are_refused(void) {
    CUmemRangeHandleType type = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    CUdeviceptr at, pooled;
    int fd;

    OK(cuMemAlloc_v2(&at, BLOCK));
    OK(cuMemAllocAsync(&pooled, BLOCK, NULL));
    FAILS(cuMemGetHandleForAddressRange(NULL, at, BLOCK, type, 0), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemGetHandleForAddressRange(&fd, at, 0, type, 0), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemGetHandleForAddressRange(&fd, at + 512, 4096, type, 0), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemGetHandleForAddressRange(&fd, at, 100, type, 0), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemGetHandleForAddressRange(&fd, at, 16 * BLOCK, type, 0), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemGetHandleForAddressRange(&fd, 4096, 4096, type, 0), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemGetHandleForAddressRange(&fd, pooled, 4096, type, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeAsync(pooled, NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemFree_v2(at));
    CHECK_EQUAL(used(), 0);
}

int main(void) {
    cuda_start(NULL);
    all_are_one_file();
    copies_keep_it();
    what_was_let_go_can_be_had_again();
    dma_buf_keeps_linear_memory();
    dma_buf_keeps_all_mappings();
    wrong_ranges_are_refused();
    return 0;
}
