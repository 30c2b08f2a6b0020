/*
 * Memory of graphs. Allocation nodes take device memory when a graph is instantiated or launched.
 * The driver keeps it for later launches until it is trimmed.
 *
 * An executable graph takes at most the sum of its allocation nodes, which is reserved before.
 * After the call CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT tells what it took. A graph that is
 * launched again finds its memory there, so only what several graphs running at once could need is
 * reserved then. A graph without allocation nodes costs one load.
 */
#ifndef DIVVY_CUDA_MEMORY_GRAPH_H
#define DIVVY_CUDA_MEMORY_GRAPH_H

#include "cuda/memory/reservation.h"
#include "share/share.h"

/* This process has made an allocation node. From now on graphs are searched for them. */
DV_HIDDEN void graph_memory_used(void);

/* A driver call that may make the driver take memory for an executable graph. */
struct graph_reservation {
    struct reservation reservations[DV_PAGE_DEVICES];
    uint32_t open;                  /* by bit: devices with a reservation */
    uint64_t need[DV_PAGE_DEVICES]; /* bytes of allocation nodes, when a graph is instantiated */
};

/* Before and after a graph is instantiated. */
DV_HIDDEN CUresult graph_instantiate(struct graph_reservation *reservation, CUgraph graph);
DV_HIDDEN CUresult graph_instantiated(struct graph_reservation *reservation, CUresult result,
                                      CUgraphExec *exec);

/* Whether a launch needs a reservation; before and after the launch. */
DV_HIDDEN bool graph_has_memory(CUgraphExec exec);
DV_HIDDEN CUresult graph_launch(struct graph_reservation *reservation, CUgraphExec exec);
DV_HIDDEN CUresult graph_launched(struct graph_reservation *reservation, CUresult result,
                                  CUgraphExec exec);

/* Before an executable graph is destroyed, and after. */
struct graph_end {
    uint64_t need[DV_PAGE_DEVICES];
    uint32_t devices; /* by bit */
};
DV_HIDDEN void graph_ending(struct graph_end *end, CUgraphExec exec);
DV_HIDDEN void graph_ended(const struct graph_end *end, CUgraphExec exec, CUresult result);

/* The driver was told to give back what no graph uses. */
DV_HIDDEN void graph_trimmed(unsigned device);

#endif
