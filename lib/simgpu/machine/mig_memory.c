/* The memory of GPU instances: each has a part of the GPU's blocks, whichever they are. */
#include "abi/generated/machine_layout.h"
#include "simgpu/machine/state.h"

/* Of each memory slice: nvidia-smi shows 12 MiB in use of an empty instance of one slice, 25 MiB of one of two. */
#define RESERVED_BYTES (12ull << 20)

static const sim_mig_profile *profile_of(const struct sg_instance *in, uint32_t profile) {
    const sim_machine *machine = (const sim_machine *)(const void *)in->state->machine;

    return &machine->mig_profiles[profile % SIM_MIG_PROFILES_MAX];
}

uint64_t sg_mig_reserved(const struct sg_instance *in, uint32_t profile) {
    return profile_of(in, profile)->size * RESERVED_BYTES;
}

uint32_t sg_mig_blocks(const struct sg_instance *in, uint32_t gpu, uint32_t gi) {
    uint32_t profile = in->state->gpus[gpu].mig.instances[gi].profile;

    return (uint32_t)(((profile_of(in, profile)->memory_mib << 20) - sg_mig_reserved(in, profile)) /
                      SG_BLOCK_BYTES);
}

static struct sg_gpu_instance *instance_of(const struct sg_instance *in, uint32_t place) {
    return &in->state->gpus[sg_place_gpu(place) % SG_GPUS_MAX].mig.instances[sg_place_gi(place)];
}

void sg_mig_count(struct sg_instance *in, uint32_t place, int32_t blocks) {
    if (place) {
        uint32_t *used = &instance_of(in, place)->used_blocks;
        __atomic_store_n(used, *used + (uint32_t)blocks, __ATOMIC_RELAXED);
    }
}

void sg_mig_resident(struct sg_instance *in, uint32_t place, uint32_t chunks) {
    if (place) {
        uint32_t *resident = &instance_of(in, place)->resident;
        __atomic_store_n(resident, *resident + chunks, __ATOMIC_RELAXED);
    }
}

uint32_t sg_pages_resident(const struct sg_instance *in, uint32_t gpu, uint32_t place) {
    const struct sg_gpu *g = &in->state->gpus[gpu];

    return place ? g->mig.instances[sg_place_gi(place)].resident
                 : __atomic_load_n(&g->pages.resident, __ATOMIC_RELAXED);
}

static uint32_t own_place(const struct sg_instance *in) {
    return in->id < SG_CLIENTS_MAX ? in->state->clients[in->id].place : 0;
}

uint32_t sg_blocks_room(const struct sg_instance *in, uint32_t gpu) {
    return sg_blocks_room_of(in, gpu, own_place(in));
}

uint32_t sg_blocks_free(const struct sg_instance *in, uint32_t gpu) {
    uint32_t place = own_place(in), room = sg_blocks_room(in, gpu);
    uint32_t resident = sg_pages_resident(in, gpu, place);

    return resident < room ? room - resident : 0;
}

uint32_t sg_blocks_room_of(const struct sg_instance *in, uint32_t gpu, uint32_t place) {
    uint32_t room = __atomic_load_n(&in->state->gpus[gpu].free_blocks, __ATOMIC_RELAXED);

    if (place) {
        uint32_t whole = sg_mig_blocks(in, gpu, sg_place_gi(place));
        uint32_t used = __atomic_load_n(&instance_of(in, place)->used_blocks, __ATOMIC_RELAXED);
        uint32_t left = used < whole ? whole - used : 0;
        return left < room ? left : room;
    }
    return room;
}
