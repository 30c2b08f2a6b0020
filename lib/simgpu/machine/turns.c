#include "simgpu/machine/turns.h"

#include <string.h>

static void set_bit(uint64_t *bits, uint32_t i, bool on) {
    uint64_t bit = UINT64_C(1) << (i % 64);

    if (on) {
        bits[i / 64] |= bit;
    } else {
        bits[i / 64] &= ~bit;
    }
}

/* The first bit at or after `from`; SG_CLIENTS_MAX when there is none. */
static uint32_t next_bit(const uint64_t *bits, uint32_t from) {
    while (from < SG_CLIENTS_MAX) {
        uint64_t word = bits[from / 64] >> (from % 64);
        if (word) {
            return from + (uint32_t)__builtin_ctzll(word);
        }
        from = (from / 64 + 1) * 64;
    }
    return SG_CLIENTS_MAX;
}

/* All users of a divided GPU's instances are one party, of this number. No other client has work there. */
#define DIVIDED 0u

static bool divided(const struct sg_instance *in, uint32_t gpu) {
    return __atomic_load_n(&in->state->gpus[gpu].mig.on, __ATOMIC_RELAXED) != 0;
}

uint32_t turn_of(const struct sg_instance *in, uint32_t gpu, uint32_t client) {
    if (divided(in, gpu)) {
        return DIVIDED;
    }
    uint32_t server = sg_channel(in, client, gpu)->server;

    return server && server <= SG_CLIENTS_MAX ? server - 1 : client;
}

uint32_t turn_members(const struct sg_instance *in, uint32_t gpu, uint32_t party,
                      uint32_t members[SG_GROUP_MAX]) {
    const uint64_t *runnable = in->state->gpus[gpu].runnable;
    uint32_t count = 0;

    /* A server is one of its own group. */
    if (sg_channel(in, party, gpu)->server == 0 && !divided(in, gpu)) {
        members[0] = party;
        return turn_bit(runnable, party);
    }
    for (uint32_t i = 0; (i = next_bit(runnable, i)) < SG_CLIENTS_MAX && count < SG_GROUP_MAX;
         i++) {
        if (turn_of(in, gpu, i) == party) {
            members[count++] = i;
        }
    }
    return count;
}

void turn_set(struct sg_instance *in, uint32_t gpu, uint32_t client, bool on) {
    struct sg_gpu *g = &in->state->gpus[gpu];
    uint32_t party = turn_of(in, gpu, client), members[SG_GROUP_MAX];

    set_bit(g->runnable, client, on);
    set_bit(g->turns, party, on || turn_members(in, gpu, party, members) > 0);
}

uint32_t turn_next(const struct sg_gpu *g, uint32_t from) {
    uint32_t next = next_bit(g->turns, from);

    return next < SG_CLIENTS_MAX ? next : next_bit(g->turns, 0);
}

void turn_recount(struct sg_instance *in, uint32_t gpu) {
    struct sg_gpu *g = &in->state->gpus[gpu];

    memset(g->turns, 0, sizeof g->turns);
    for (uint32_t i = 0; (i = next_bit(g->runnable, i)) < SG_CLIENTS_MAX; i++) {
        set_bit(g->turns, turn_of(in, gpu, i), true);
    }
}

uint64_t turn_slice(const struct sg_instance *in, uint32_t gpu, uint32_t party) {
    uint64_t own = sg_channel(in, party, gpu)->slice_ns;

    return own ? own : sg_slice_ns(in, gpu);
}
