#define _GNU_SOURCE
#include "simgpu/cuda/test/cuda.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry divvy_busy_ns(.param .u64 a) { ret; }\n"
                          ".visible .entry divvy_vecadd(.param .u64 a) { ret; }\n"
                          ".visible .entry divvy_fill(.param .u64 a) { ret; }\n"
                          ".visible .entry divvy_fault() { ret; }\n"
                          ".visible .entry divvy_sweep() { ret; }\n"
                          ".visible .entry divvy_scatter() { ret; }\n"
                          ".visible .entry other(.param .u64 a) { ret; }\n";

CUcontext cuda_start(void (*change)(sim_machine *machine)) {
    sim_machine machine;
    CUcontext ctx;

    setting_describe(&machine);
    if (change) {
        change(&machine);
    }
    setting_make(&machine);
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    return ctx;
}

uint64_t cuda_true(enum sg_category category) {
    struct sg_instance *in = &sg_driver.instance;

    sg_state_lock(in);
    uint64_t bytes = in->state->clients[in->id].bytes[0][category];
    sg_state_unlock(in);
    return bytes;
}

uint64_t cuda_true_all(void) {
    struct sg_instance *in = &sg_driver.instance;

    sg_state_lock(in);
    uint64_t bytes = sg_client_used(in, in->id, 0);
    sg_state_unlock(in);
    return bytes;
}

CUfunction cuda_kernel(const char *name) {
    static CUmodule module;
    CUfunction function;

    if (!module) {
        OK(cuModuleLoadData(&module, ptx));
    }
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

CUresult cuda_busy(CUstream stream, uint64_t ns) {
    void *params[] = {&ns};

    return cuLaunchKernel(cuda_kernel("divvy_busy_ns"), 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

int cuda_child(int (*body)(int channel), int channel) {
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        _exit(body(channel));
    }
    while (waitpid(child, &status, 0) < 0) {
        CHECK(errno == EINTR);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void cuda_send_fd(int channel, int fd) {
    char byte = 'f', control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);

    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    CHECK_EQUAL(sendmsg(channel, &message, 0), 1);
}

int cuda_receive_fd(int channel) {
    int fd;
    char byte, control[CMSG_SPACE(sizeof fd)];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};

    CHECK_EQUAL(recvmsg(channel, &message, 0), 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}
