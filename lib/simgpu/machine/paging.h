/* Work that waits for managed memory. The schedule lock and the pages lock, unless a comment says otherwise. */
#ifndef SIMGPU_MACHINE_PAGING_H
#define SIMGPU_MACHINE_PAGING_H

#include "simgpu/machine/state.h"

/* Keeps what work of the caller touches between two positions of its channel. */
void paging_demand(struct sg_instance *in, uint32_t gpu, const struct sg_work *work, uint64_t start,
                   uint64_t end);
/* The position of the client's next touch that misses; at most `limit`. */
uint64_t paging_next(const struct sg_instance *in, uint32_t gpu, uint32_t client, uint64_t limit);
/* The client has executed up to a position: its touches before that found what they touched. */
void paging_pass(struct sg_instance *in, uint32_t gpu, uint32_t client, uint64_t position);
/* Whether a touch misses just where the client is: it waits from now on then. */
bool paging_stall(struct sg_instance *in, uint32_t gpu, uint32_t client);
/* Ends the waits that are over by the GPU's clock. Returns when the next one is; UINT64_MAX while nobody waits. */
uint64_t paging_wake(struct sg_instance *in, uint32_t gpu);
/* The client's work is dropped; the schedule lock. */
void paging_drop(struct sg_instance *in, uint32_t gpu, uint32_t client);
/* Who waits is who has a moment to wait for: after the holder of the schedule lock died. */
void paging_repair(struct sg_instance *in, uint32_t gpu, uint32_t client);
/* When the client's wait is over; 0 when it does not wait. The schedule lock. */
uint64_t paging_until(const struct sg_instance *in, uint32_t gpu, uint32_t client);

#endif
