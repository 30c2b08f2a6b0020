/*
 * A process of a swap share with three parts of swapped memory, which kernels go over. The test is the agent.
 */
#ifndef DIVVY_CUDA_TEST_PARTS_H
#define DIVVY_CUDA_TEST_PARTS_H

#include "cuda/test/orders.h"

#define PARTS 3
#define PART (64 * MIB)
#define PARTS_LOAD_NS (80 * (uint64_t)MS) /* what loading code takes */

extern struct setting s;
extern CUcontext context;
extern CUdeviceptr parts[PARTS];
extern const char parts_image[]; /* divvy_busy_ns and divvy_sweep */

/* Makes the share, with an open gate, and the parts. */
void parts_begin(void);

/* Swapped memory on the GPU, by the simulated driver's record. */
uint64_t parts_resident(void);

CUresult parts_go_over(CUdeviceptr part, CUstream stream);

/* A turn in which the parts of a set are used, bit by bit. */
void parts_use(unsigned set);

/* The share leaves and is away; it enters. */
void parts_leave(uint64_t give);
void parts_enter(uint64_t room);

#endif
