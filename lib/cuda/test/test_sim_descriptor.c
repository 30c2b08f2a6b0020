/* Memory that leaves as file descriptors: charged until the last holder of one is gone, wherever that
 * is, and no longer. */
#define _GNU_SOURCE
#include "cuda/test/sim.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIMIT (3072 * MIB)
#define SIZE (16 * MIB)
#define MANY 1000

static struct setting s, neighbour;

static uint64_t used_of(struct setting *of) {
    dv_reap(of->share);
    dv_export_settle(of->share);
    check_sums(of->share);
    return used_bytes(of->share, 0);
}

/* What the share is charged for is what it has, and that is so many bytes beside a context. */
static void check(uint64_t bytes) {
    CHECK_EQUAL(used_of(&s), SIM_CONTEXT + bytes);
    CHECK_EQUAL(sim_used(&s, 0), SIM_CONTEXT + bytes);
    CHECK_EQUAL(pending_bytes(s.share, 0), 0);
}

static CUmemGenericAllocationHandle create(struct setting *of, size_t bytes) {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CHECK_EQUAL(CUDA(of, cuMemCreate)(&handle, bytes, &prop, 0), CUDA_SUCCESS);
    return handle;
}

static int export(struct setting *of, CUmemGenericAllocationHandle handle) {
    int fd = -1;
    CHECK_EQUAL(CUDA(of, cuMemExportToShareableHandle)(&fd, handle,
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                CUDA_SUCCESS);
    return fd;
}

static CUmemGenericAllocationHandle import(struct setting *of, int fd) {
    CUmemGenericAllocationHandle handle;
    CHECK_EQUAL(CUDA(of, cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)fd,
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                CUDA_SUCCESS);
    return handle;
}

static void release(struct setting *of, CUmemGenericAllocationHandle handle) {
    CHECK_EQUAL(CUDA(of, cuMemRelease)(handle), CUDA_SUCCESS);
}

static CUdeviceptr reserve(struct setting *of, size_t bytes) {
    CUdeviceptr address;
    CHECK_EQUAL(CUDA(of, cuMemAddressReserve)(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    return address;
}

static void map(struct setting *of, CUdeviceptr address, size_t bytes,
                CUmemGenericAllocationHandle handle) {
    CHECK_EQUAL(CUDA(of, cuMemMap)(address, bytes, 0, handle, 0), CUDA_SUCCESS);
}

static void unmap(struct setting *of, CUdeviceptr address, size_t bytes) {
    CHECK_EQUAL(CUDA(of, cuMemUnmap)(address, bytes), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(of, cuMemAddressFree)(address, bytes), CUDA_SUCCESS);
}

static int dma_buf(CUdeviceptr address, size_t bytes) {
    int fd = -1;
    CHECK_EQUAL(CUDA(&s, cuMemGetHandleForAddressRange)(&fd, address, bytes,
                                                        CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
                CUDA_SUCCESS);
    return fd;
}

static void send_fd(int channel, int fd) {
    char byte = 0, room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    CHECK_EQUAL(sendmsg(channel, &message, 0), 1);
}

static int receive_fd(int channel) {
    char byte, room[CMSG_SPACE(sizeof(int))];
    int fd;
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    CHECK_EQUAL(recvmsg(channel, &message, 0), 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

/* Device and inode of all descriptors are the same, and numbers are used again. */
static void a_number_is_used_again(void) {
    CUmemGenericAllocationHandle a = create(&s, SIZE), b = create(&s, 2 * SIZE);
    int first = export(&s, a);
    close(first);
    int second = export(&s, b);
    CHECK_EQUAL(second, first);
    release(&s, a);
    check(2 * SIZE);
    release(&s, b);
    check(2 * SIZE);
    close(second);
    check(0);
}

static void copies_count(void) {
    CUmemGenericAllocationHandle handle = create(&s, SIZE);
    int fd = export(&s, handle), again = export(&s, handle), copy = dup(fd);
    close(fd);
    release(&s, handle);
    check(SIZE);
    close(again);
    check(SIZE);
    close(copy);
    check(0);
}

/* What a release gives back at once needs no look. */
static void a_closed_export_ends_with_its_release(void) {
    CUmemGenericAllocationHandle handle = create(&s, SIZE);
    close(export(&s, handle));
    release(&s, handle);
    CHECK_EQUAL(used_bytes(s.share, 0), SIM_CONTEXT);
    check(0);
}

static void wait_for_the_end(void *arg) {
    char byte;
    CHECK_EQUAL(read(*(int *)arg, &byte, 1), 1);
}

/* A process that never heard of CUDA, and a socket that nobody reads. */
static void strangers_count(void) {
    int channel[2], end[2];
    CUmemGenericAllocationHandle handle = create(&s, SIZE), other = create(&s, SIZE);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0 && pipe(end) == 0);
    int fd = export(&s, handle), in_flight = export(&s, other);
    send_fd(channel[0], in_flight);
    close(in_flight);
    pid_t child = spawn(wait_for_the_end, &end[0]);
    close(fd);
    release(&s, handle);
    release(&s, other);
    check(2 * SIZE);
    CHECK(kill(child, SIGKILL) == 0);
    wait_killed(child);
    check(SIZE);
    close(channel[0]);
    check(SIZE);
    close(channel[1]);
    check(0);
    close(end[0]);
    close(end[1]);
}

static void many_at_once(void) {
    static CUmemGenericAllocationHandle handles[MANY];
    static int fds[MANY];
    for (size_t i = 0; i < MANY; i++) {
        handles[i] = create(&s, BLOCK);
        fds[i] = export(&s, handles[i]);
    }
    for (size_t i = 0; i < MANY; i++) {
        release(&s, handles[i]);
    }
    check(MANY * BLOCK);
    for (size_t i = 0; i < MANY / 2; i++) {
        close(fds[i]);
    }
    check(MANY / 2 * BLOCK);
    for (size_t i = MANY / 2; i < MANY; i++) {
        close(fds[i]);
    }
    check(0);
}

static void room_is_found_for_the_next(void) {
    CUmemGenericAllocationHandle handle = create(&s, LIMIT - SIM_CONTEXT);
    int fd = export(&s, handle);
    release(&s, handle);
    close(fd);
    handle = create(&s, LIMIT - SIM_CONTEXT);
    release(&s, handle);
    check(0);
}

static void a_dma_buf_keeps_linear_memory(void) {
    CUdeviceptr address, other;
    CUipcMemHandle handle;
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, SIZE), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&other, SIZE), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuIpcGetMemHandle)(&handle, other), CUDA_SUCCESS);
    int fd = dma_buf(address + SIZE / 2, SIZE / 4), of_other = dma_buf(other, SIZE);
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(address), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(other), CUDA_SUCCESS);
    check(2 * SIZE);
    close(fd);
    check(SIZE);
    close(of_other);
    check(0);
}

static void a_dma_buf_keeps_what_is_mapped(void) {
    CUmemGenericAllocationHandle a = create(&s, SIZE), b = create(&s, SIZE);
    CUdeviceptr address = reserve(&s, 2 * SIZE);
    map(&s, address, SIZE, a);
    map(&s, address + SIZE, SIZE, b);
    int second = dma_buf(address + SIZE + BLOCK, BLOCK), both = dma_buf(address + BLOCK, SIZE);
    unmap(&s, address, 2 * SIZE);
    release(&s, a);
    release(&s, b);
    check(2 * SIZE);
    close(both);
    check(SIZE);
    close(second);
    check(0);
}

static void refused_exports_change_nothing(void) {
    CUmemGenericAllocationHandle handle = create(&s, SIZE);
    int fd = -1;
    CHECK(CUDA(&s, cuMemExportToShareableHandle)(
              &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 5) != CUDA_SUCCESS);
    CHECK(CUDA(&s, cuMemExportToShareableHandle)(
              NULL, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS);
    CHECK(CUDA(&s, cuMemGetHandleForAddressRange)(
              &fd, 4096, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) != CUDA_SUCCESS);
    CHECK_EQUAL(fd, -1);
    check(SIZE);
    release(&s, handle);
    check(0);
}

/* Imports by the process that made it, however often. */
static void an_own_import_is_free(void) {
    CUmemGenericAllocationHandle handle = create(&s, SIZE);
    int fd = export(&s, handle);
    CUmemGenericAllocationHandle once = import(&s, fd), twice = import(&s, fd);
    CUdeviceptr first = reserve(&s, SIZE), second = reserve(&s, SIZE);
    map(&s, first, SIZE, once);
    map(&s, second, SIZE, twice);
    close(fd);
    release(&s, handle);
    release(&s, once);
    check(SIZE);
    unmap(&s, first, SIZE);
    check(SIZE);
    unmap(&s, second, SIZE);
    check(SIZE);
    release(&s, twice);
    check(0);
}

struct part {
    struct setting *of;
    int in, out;
};

/* Another process: imports and maps twice, tells that it has, and dies. */
static void import_and_die(void *arg) {
    const struct part *part = arg;
    struct setting *of = part->of;
    setting_open(of);
    setting_context(of);
    int fd = receive_fd(part->in);
    CUmemGenericAllocationHandle once = import(of, fd), twice = import(of, fd);
    close(fd);
    CUdeviceptr address = reserve(of, 2 * SIZE);
    map(of, address, SIZE / 2, once);
    map(of, address + SIZE, SIZE, twice);
    CHECK_EQUAL(write(part->out, "", 1), 1);
    pause();
}

static void next(int channel) {
    char byte;
    CHECK_EQUAL(read(channel, &byte, 1), 1);
}

/* Starts such a process in a share, hands it the descriptor, and waits until it has imported. */
static pid_t importer(struct setting *of, int fd) {
    int channel[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
    struct part part = {of, channel[1], channel[1]};
    pid_t pid = spawn(import_and_die, &part);
    close(channel[1]);
    send_fd(channel[0], fd);
    next(channel[0]);
    close(channel[0]);
    return pid;
}

static void end(pid_t pid) {
    CHECK(kill(pid, SIGKILL) == 0);
    wait_killed(pid);
}

static void make_send_and_wait(void *arg) {
    const struct part *part = arg;
    setting_open(part->of);
    setting_context(part->of);
    int fd = export(part->of, create(part->of, SIZE));
    send_fd(part->out, fd);
    pause();
}

/* The maker dies; an importer of its share holds the memory, then a descriptor alone, then nothing.
 * A neighbour that imports it is charged too, once. */
static void processes_hand_it_on(void) {
    int channel[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
    struct part part = {&s, channel[1], channel[1]};
    pid_t maker = spawn(make_send_and_wait, &part);
    int fd = receive_fd(channel[0]);
    pid_t user = importer(&s, fd);
    CHECK_EQUAL(used_of(&s), 2 * SIM_CONTEXT + SIZE);
    CHECK_EQUAL(sim_used(&s, 0), 2 * SIM_CONTEXT + SIZE);
    pid_t first = importer(&neighbour, fd), second = importer(&neighbour, fd);
    CHECK_EQUAL(used_of(&neighbour), 2 * SIM_CONTEXT + SIZE);
    end(first);
    CHECK_EQUAL(used_of(&neighbour), SIM_CONTEXT + SIZE);
    end(second);
    CHECK_EQUAL(used_of(&neighbour), 0);
    end(maker);
    close(fd);
    check(SIZE);
    close(channel[1]);
    fd = -1;
    end(user);
    CHECK_EQUAL(used_of(&s), 0);
    CHECK_EQUAL(sim_used(&s, 0), 0);
    close(channel[0]);
}

static void the_last_descriptor_outlives_all(void) {
    int channel[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
    struct part part = {&s, channel[1], channel[1]};
    pid_t maker = spawn(make_send_and_wait, &part);
    int fd = receive_fd(channel[0]);
    pid_t user = importer(&s, fd);
    end(maker);
    end(user);
    CHECK_EQUAL(used_of(&s), SIZE);
    CHECK_EQUAL(sim_used(&s, 0), SIZE);
    close(fd);
    CHECK_EQUAL(used_of(&s), 0);
    CHECK_EQUAL(sim_used(&s, 0), 0);
    close(channel[0]);
    close(channel[1]);
}

int main(void) {
    sim_make_closed(&s, 1, LIMIT);
    sim_make_neighbour(&neighbour, 1, LIMIT);
    s.share = tenant_open(&s.tenant);
    neighbour.share = tenant_open(&neighbour.tenant);
    processes_hand_it_on();
    the_last_descriptor_outlives_all();
    setting_open(&s);
    setting_context(&s);
    a_number_is_used_again();
    copies_count();
    a_closed_export_ends_with_its_release();
    strangers_count();
    many_at_once();
    room_is_found_for_the_next();
    a_dma_buf_keeps_linear_memory();
    a_dma_buf_keeps_what_is_mapped();
    refused_exports_change_nothing();
    an_own_import_is_free();
    return 0;
}
