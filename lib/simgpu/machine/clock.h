/* The clock of a simulated machine. Part of state.h. */
#ifndef DIVVY_SIMGPU_MACHINE_CLOCK_H
#define DIVVY_SIMGPU_MACHINE_CLOCK_H

#include <stdint.h>

struct sg_instance;

/* CLOCK_MONOTONIC. */
uint64_t sg_now(void);
/* The instance's clock: CLOCK_MONOTONIC, or the virtual one. */
uint64_t sg_time(const struct sg_instance *in);
/* Moves a virtual clock on. */
void sg_clock_move(struct sg_instance *in, uint64_t ns);
/* For waiting: what to give to sg_clock_wait, read before looking whether to wait. */
uint32_t sg_clock_moves(const struct sg_instance *in);
/* Sleeps until about `ns` of the instance's time have passed; on a virtual clock until the next
 * move after `moves` was read. */
void sg_clock_wait(const struct sg_instance *in, uint64_t ns, uint32_t moves);

#endif
