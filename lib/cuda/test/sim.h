/*
 * A tenant on a simulated machine: our libraries in front of simgpu's, and what truly happens
 * there.
 */
#ifndef DIVVY_CUDA_TEST_SIM_H
#define DIVVY_CUDA_TEST_SIM_H

#include "cuda/test/setting.h"

#define SIM_GPUS 3
#define SIM_TOTAL ((uint64_t)16 << 30)
#define SIM_CONTEXT (4 * MIB)

/* What the next machine does with handles that have ended, SIM_DEAD_END unless a test sets it. */
extern uint64_t sim_dead_handles;

/* Makes a machine of SIM_GPUS GPUs and a share of `limit` bytes on each of the first so many, and
 * opens the library. GPU i has sixteen times i + 1 as its UUID. All goes when the test ends. */
void sim_make(struct setting *setting, unsigned gpus, uint64_t limit);

/* The time in which the driver of machines made from now on loads the code of a kernel; 0. */
extern uint64_t sim_load_ns;

/* The version of CUDA that the driver of machines made from now on serves, 12040. */
extern uint32_t sim_cuda_version;

/* The driver of shares made from now on, simgpu's. Another one finds that as libcuda-simgpu.so.1. */
extern const char *sim_driver;

/* Whether the first two GPUs of the next machine are in MIG mode, without instances: eight memory
 * slices of 2 GiB and ten multiprocessors in parts of one for each compute slice. */
extern bool sim_mig;

/* A swap share of `limit` bytes on each of the first so many GPUs, of which `kept` never leave one. */
void sim_make_swap(struct setting *setting, unsigned gpus, uint64_t limit, uint64_t kept);
void sim_make_swap_closed(struct setting *setting, unsigned gpus, uint64_t limit, uint64_t kept);

/* The same as sim_make without opening it. */
void sim_make_closed(struct setting *setting, unsigned gpus, uint64_t limit);

/* A second tenant on the machine of the first, not opened. */
void sim_make_neighbour(struct setting *setting, unsigned gpus, uint64_t limit);

/* Bytes that the tenant truly holds on a GPU, and the most it ever held. */
uint64_t sim_used(const struct setting *setting, unsigned gpu);
uint64_t sim_peak(const struct setting *setting, unsigned gpu);

/* Reads the simulator's report, and a tenant's figure in the report that was read last. */
void sim_look(void);
uint64_t sim_seen(const struct setting *setting, unsigned gpu, const char *name);

/* The machine's directory, and a figure of a process on its first GPU in the report that was read
 * last; UINT64_MAX if it has none. */
const char *sim_machine_directory(void);
void sim_join(const char *machine); /* for a program that another one has executed */
uint64_t sim_seen_of(pid_t pid, const char *name);

/* The MIG instance of a process in that report; empty if it has none. */
void sim_instance_of(pid_t pid, char name[48]);

/* GPU time that the tenant truly had, in ns. */
uint64_t sim_time(const struct setting *setting, unsigned gpu);

/* Checks that the account is the truth, to the byte. */
#define CHECK_TRUE_ACCOUNT(setting) CHECK_EQUAL(setting_used(setting), sim_used((setting), 0))

#endif
