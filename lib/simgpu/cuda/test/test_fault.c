/* A kernel that reads an unmapped address: its context is lost, and no other process notices. */
#define _GNU_SOURCE
#include "simgpu/cuda/test/cuda.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static CUresult launch(const char *name) {
    return cuLaunchKernel(cuda_kernel(name), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static void begin(void) {
    CUcontext ctx;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
}

/* Computes before and after each byte that comes, and says so. */
static int neighbour(int channel) {
    char byte = 'r';
    CUdeviceptr address;

    begin();
    OK(cuMemAlloc_v2(&address, BLOCK));
    do {
        OK(cuda_busy(NULL, 1000));
        OK(cuMemsetD8_v2(address, 1, BLOCK));
        OK(cuCtxSynchronize());
        CHECK_EQUAL(write(channel, &byte, 1), 1);
    } while (read(channel, &byte, 1) == 1);
    return 0;
}

/* "CUDA_ERROR_ILLEGAL_ADDRESS: this leaves the process in an inconsistent state and any further CUDA work will return
 * the same error" (CUDA driver API, data types). */
static int faulty(int channel) {
    CUdeviceptr address;
    size_t left, total;

    (void)channel;
    begin();
    OK(cuMemAlloc_v2(&address, BLOCK));
    OK(launch("divvy_fault"));
    for (int i = 0; i < 2; i++) {
        FAILS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
        FAILS(launch("other"), CUDA_ERROR_ILLEGAL_ADDRESS);
        FAILS(cuMemAlloc_v2(&address, BLOCK), CUDA_ERROR_ILLEGAL_ADDRESS);
        FAILS(cuMemGetInfo_v2(&left, &total), CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    return 0;
}

int main(void) {
    static sim_machine machine;
    int ends[2], status;
    char byte;

    setting_describe(&machine);
    setting_make(&machine);
    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        _exit(neighbour(ends[1]));
    }
    close(ends[1]);
    CHECK_EQUAL(read(ends[0], &byte, 1), 1);
    for (int i = 0; i < 20; i++) {
        CHECK_EQUAL(cuda_child(faulty, 0), 0);
        CHECK_EQUAL(write(ends[0], &byte, 1), 1);
        CHECK_EQUAL(read(ends[0], &byte, 1), 1);
    }
    close(ends[0]);
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    return 0;
}
