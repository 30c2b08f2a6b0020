/* Moves of chunks between GPUs and host memory. The pages lock. */
#ifndef SIMGPU_MACHINE_PAGE_MOVES_H
#define SIMGPU_MACHINE_PAGE_MOVES_H

#include "simgpu/machine/state.h"

/* What one request costs the driver and the link. */
struct move {
    uint64_t fault_ns, out_ns, in_ns;
};

/* Whether a touch by work on the GPU finds the chunk where it can use it. */
bool move_hits(const struct sg_instance *in, uint32_t gpu, const struct sg_chunk *chunk,
               bool write);
/* A touch that found it there, or for which it has come: notes what was written. */
void move_touched(struct sg_instance *in, uint32_t gpu, struct sg_chunk *chunk, bool write);
/* Brings a chunk to the GPU, or lets the GPU reach it where it is, and adds what that takes. `faults`: because something
 * touches it; else because a call asked for it. -ENOMEM when it cannot come because host memory has no room. */
int move_in(struct sg_instance *in, uint32_t gpu, uint32_t chunk, bool write, bool faults,
            struct move *move);
/* Takes the chunk that came longest ago off the GPU, of those whose memory the place shares. -ENOENT when there is none,
 * -ENOMEM as above. */
int move_out_oldest(struct sg_instance *in, uint32_t gpu, uint32_t place, struct move *move);
/* Brings a chunk back to the host, for the CPU that touches it or because a call asked for it. Writes to moves[gpu] what that
 * takes of each GPU. -ENOMEM as above, if only a call asked. */
int move_to_host(struct sg_instance *in, uint32_t chunk, bool touched, bool write,
                 struct move moves[SG_GPUS_MAX]);
/* Forgets a chunk and all its contents. */
void move_forget(struct sg_instance *in, uint32_t chunk);
/* Puts a request at the end of what the GPU's driver has to do; returns when it is done. */
uint64_t move_request(struct sg_instance *in, uint32_t gpu, uint64_t now, const struct move *move);
/* Room for one more chunk of the place on the GPU. */
bool move_room(const struct sg_instance *in, uint32_t gpu, uint32_t place, uint32_t chunks);
/* Makes the list of arrivals anew from the chunks. */
void move_list(struct sg_instance *in, uint32_t gpu);

#endif
