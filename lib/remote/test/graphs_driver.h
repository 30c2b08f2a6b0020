/* A driver that reads everything that it is given about nodes, attributes and captures, and one region of memory. */
#ifndef DIVVY_REMOTE_TEST_GRAPHS_DRIVER_H
#define DIVVY_REMOTE_TEST_GRAPHS_DRIVER_H

#include "remote/generated/cuda_decode.h"

/* Of region 1. */
#define GRAPHS_REGION_BYTES 4096u

/* A graph, its node, the graph of that, and its node. */
#define GRAPHS_PARENT UINT64_C(0x7100)
#define GRAPHS_PARENT_NODE UINT64_C(0x7200)
#define GRAPHS_CHILD UINT64_C(0x7300)
#define GRAPHS_CHILD_NODE UINT64_C(0x7400)

extern const struct remote_cuda_driver graphs_driver;
/* How often it was called, and of what it read. */
extern unsigned long graphs_called;
extern unsigned char graphs_sum;
/* What it tells of each node. */
extern CUgraphNodeParams graphs_told;

#endif
