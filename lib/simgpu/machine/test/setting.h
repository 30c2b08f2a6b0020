/* A simulated machine for a test of the driver's state, and processes that use it. */
#ifndef SIMGPU_MACHINE_TEST_SETTING_H
#define SIMGPU_MACHINE_TEST_SETTING_H

#include <sys/types.h>

#include "abi/generated/machine_layout.h"
#include "simgpu/machine/state.h"
#include "test/check.h"

#define MIB (1ull << 20)
#define GPU_BYTES (256 * MIB)
#define GPU_RESERVED (16 * MIB)
#define GPU_COUNT 4u

/* Four small GPUs: 0 and 1 under one PCIe switch and linked by two NVLinks, 2 at a host bridge of
 * the same NUMA node, 3 of another. The caller may change it before it is made. */
void setting_describe(sim_machine *machine);

/* Makes the machine in a directory of the test's own, which goes when the test ends or makes
 * another, and points DIVVY_SIMGPU at it. Returns the directory. */
const char *setting_make(const sim_machine *machine);
/* Removes an instance's directory and all that is in it. */
void setting_remove(const char *instance);

/* A process of tenant `tag` with a context and `blocks` blocks on a GPU, and so much GPU time to
 * compute. It is there when the function returns and stays until it is ended. */
pid_t setting_process(const char *tag, uint32_t gpu, uint32_t blocks, uint64_t work_ns);
/* Gives this process's channel so much work, which follows what it was given before. */
uint64_t setting_submit(struct sg_instance *in, uint32_t gpu, uint64_t work_ns);
/* Kills it as SIGKILL does and waits until it is gone. */
void setting_kill(pid_t process);

/* Waits until the condition holds, looking every few milliseconds; fails after five minutes. */
#define EVENTUALLY(condition)                                                                      \
    do {                                                                                           \
        uint64_t end_ = sg_now() + 300000000000u;                                                  \
        while (!(condition)) {                                                                     \
            CHECK(sg_now() < end_);                                                                \
            setting_pause();                                                                       \
        }                                                                                          \
    } while (0)
void setting_pause(void);

#endif
