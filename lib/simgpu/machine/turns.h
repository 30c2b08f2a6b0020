/* Who takes turns on a GPU: parties, each a client or the group of an MPS server. A party's number is
 * its client's slot, or its server's. The schedule lock. */
#ifndef SIMGPU_MACHINE_TURNS_H
#define SIMGPU_MACHINE_TURNS_H

#include "simgpu/machine/state.h"

static inline bool turn_bit(const uint64_t *bits, uint32_t i) {
    return bits[i / 64] >> (i % 64) & 1;
}

/* The party of a client. */
uint32_t turn_of(const struct sg_instance *in, uint32_t gpu, uint32_t client);
/* Marks a client as having work or none. */
void turn_set(struct sg_instance *in, uint32_t gpu, uint32_t client, bool on);
/* The first party with work at or after `from`, around the end; SG_CLIENTS_MAX when there is none. */
uint32_t turn_next(const struct sg_gpu *g, uint32_t from);
/* Those of a party who have work; returns how many. */
uint32_t turn_members(const struct sg_instance *in, uint32_t gpu, uint32_t party,
                      uint32_t members[SG_GROUP_MAX]);
/* Derives who takes turns from who has work. */
void turn_recount(struct sg_instance *in, uint32_t gpu);
/* How long a party's turn lasts. */
uint64_t turn_slice(const struct sg_instance *in, uint32_t gpu, uint32_t party);

#endif
