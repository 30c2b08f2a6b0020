/* What tests of the simulated CUDA driver share. */
#ifndef SIMGPU_CUDA_TEST_CUDA_H
#define SIMGPU_CUDA_TEST_CUDA_H

#include "simgpu/cuda/driver.h"
#include "simgpu/machine/test/setting.h"

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)
#define FAILS(call, result) CHECK_EQUAL(call, result)
#define BLOCK SG_BLOCK_BYTES

/* Makes the machine of setting.h, initialises the driver and makes the first GPU's primary context
 * current. `change` may alter the machine before; NULL leaves it. */
CUcontext cuda_start(void (*change)(sim_machine *machine));
/* The true bytes of this process on GPU 0 in one category, and in all. */
uint64_t cuda_true(enum sg_category category);
uint64_t cuda_true_all(void);
/* A kernel by name. */
CUfunction cuda_kernel(const char *name);
/* Launches divvy_busy_ns. */
CUresult cuda_busy(CUstream stream, uint64_t ns);
/* Runs a function in a child process that has not used the driver; returns its exit status. */
int cuda_child(int (*body)(int channel), int channel);
/* Passes a descriptor through a socket. */
void cuda_send_fd(int channel, int fd);
int cuda_receive_fd(int channel);

#endif
