/* MIG: which instances there are and where. */
#define _GNU_SOURCE
#include "abi/generated/machine_layout.h"
#include "simgpu/machine/state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const sim_machine *machine_of(const struct sg_instance *in) {
    return (const sim_machine *)(const void *)in->state->machine;
}

static const sim_mig_profile *profile_at(const struct sg_instance *in, uint32_t profile) {
    return &machine_of(in)->mig_profiles[profile % SIM_MIG_PROFILES_MAX];
}

static struct sg_mig *mig_of(const struct sg_instance *in, uint32_t gpu) {
    return &in->state->gpus[gpu % SG_GPUS_MAX].mig;
}

bool sg_mig_on(const struct sg_instance *in, uint32_t gpu) {
    return __atomic_load_n(&mig_of(in, gpu)->on, __ATOMIC_RELAXED) != 0;
}

static uint32_t bits(uint32_t start, uint32_t size) {
    return ((1u << size) - 1) << start;
}

/* ---- the mode ---- */

void sg_mig_reset(struct sg_instance *in, uint32_t gpu) {
    struct sg_mig *mig = mig_of(in, gpu);

    memset(mig->instances, 0, sizeof mig->instances);
    __atomic_store_n(&mig->on, mig->pending, __ATOMIC_RELAXED);
}

int sg_mig_set(struct sg_instance *in, uint32_t gpu, bool on, bool by_reset) {
    struct sg_mig *mig = mig_of(in, gpu);

    mig->pending = on;
    if (mig->on == mig->pending) {
        return 0;
    }
    if (sg_opened_elsewhere(in, gpu)) { /* "if device unbind fails because the device isn't idle" */
        return -EBUSY;
    }
    if (by_reset && in->state->gpus[gpu].faults.unresettable) {
        return -EAGAIN;
    }
    if (by_reset) {
        sg_slice_level_set(in, gpu, SG_SLICE_DEFAULT);
    }
    sg_mig_reset(in, gpu);
    return 0;
}

/* ---- GPU instances ---- */

/* Ids count the places of a binary tree over the memory slices, widest first: `nvidia-smi mig -lgi` shows ids 7 and
 * more for instances of one slice in eight, 3 and more for two, 1 and 2 for four. */
static uint32_t id_at(const struct sg_instance *in, uint32_t start, uint32_t size) {
    return machine_of(in)->mig_slices / size - 1 + start / size;
}

static uint32_t occupied(const struct sg_instance *in, uint32_t gpu) {
    uint32_t taken = 0;

    for (uint32_t i = 0; i < SG_MIG_GPU_INSTANCES; i++) {
        const struct sg_gpu_instance *instance = &mig_of(in, gpu)->instances[i];
        if (instance->in_use) {
            taken |= bits(instance->start, profile_at(in, instance->profile)->size);
        }
    }
    return taken;
}

static uint32_t count_of(const struct sg_instance *in, uint32_t gpu, uint32_t profile) {
    uint32_t count = 0;

    for (uint32_t i = 0; i < SG_MIG_GPU_INSTANCES; i++) {
        const struct sg_gpu_instance *instance = &mig_of(in, gpu)->instances[i];
        count += instance->in_use && instance->profile == profile;
    }
    return count;
}

/* The starts where an instance of the profile fits now. */
static uint32_t free_starts(const struct sg_instance *in, uint32_t gpu, uint32_t profile) {
    const sim_mig_profile *p = profile_at(in, profile);
    uint32_t taken = occupied(in, gpu), starts = 0;

    if (count_of(in, gpu, profile) >= p->instances) {
        return 0;
    }
    for (uint32_t start = 0; start < machine_of(in)->mig_slices; start++) {
        if (p->starts >> start & 1 && !(taken & bits(start, p->size))) {
            starts |= 1u << start;
        }
    }
    return starts;
}

uint32_t sg_mig_remaining(const struct sg_instance *in, uint32_t gpu, uint32_t profile) {
    const sim_mig_profile *p = profile_at(in, profile);
    uint32_t starts = free_starts(in, gpu, profile),
             left = p->instances - count_of(in, gpu, profile), fit = 0;

    for (uint32_t start = 0, next = 0; start < machine_of(in)->mig_slices && fit < left; start++) {
        if (start >= next && starts >> start & 1) {
            next = start + p->size;
            fit++;
        }
    }
    return fit;
}

int sg_mig_create(struct sg_instance *in, uint32_t gpu, uint32_t profile, uint32_t start) {
    const sim_mig_profile *p = profile_at(in, profile);
    uint32_t starts = free_starts(in, gpu, profile);

    if (start == SG_MIG_ANYWHERE) {
        if (starts == 0) {
            return -ENOSPC;
        }
        /* The first of two halves lies high, smaller ones low: the user guide's examples make ids 2, 3 and 7 first. */
        start =
            p->slices == 3 ? 31 - (uint32_t)__builtin_clz(starts) : (uint32_t)__builtin_ctz(starts);
    } else if (start >= machine_of(in)->mig_slices || !(p->starts >> start & 1)) {
        return -EINVAL;
    } else if (!(starts >> start & 1)) {
        return -ENOSPC;
    }
    uint32_t id = id_at(in, start, p->size);
    mig_of(in, gpu)->instances[id] =
        (struct sg_gpu_instance){.in_use = 1, .profile = profile, .start = start};
    return (int)id;
}

const struct sg_gpu_instance *sg_mig_gpu_instance(const struct sg_instance *in, uint32_t gpu,
                                                  uint32_t gi) {
    if (gpu >= in->state->gpu_count || gi >= SG_MIG_GPU_INSTANCES ||
        !mig_of(in, gpu)->instances[gi].in_use) {
        return NULL;
    }
    return &mig_of(in, gpu)->instances[gi];
}

/* Whether a process uses the compute instance, or with SG_MIG_ANYWHERE any of the GPU instance. */
static bool is_used(struct sg_instance *in, uint32_t gpu, uint32_t gi, uint32_t ci) {
    sg_reap(in);
    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        uint32_t place = in->state->clients[i].place;
        if (place && sg_place_gpu(place) == gpu && sg_place_gi(place) == gi &&
            (ci == SG_MIG_ANYWHERE || sg_place_ci(place) == ci)) {
            return true;
        }
    }
    return false;
}

int sg_mig_destroy(struct sg_instance *in, uint32_t gpu, uint32_t gi) {
    struct sg_gpu_instance *instance = &mig_of(in, gpu)->instances[gi];

    for (uint32_t i = 0; i < SG_MIG_COMPUTE_INSTANCES; i++) {
        if (instance->computes[i].in_use) {
            return -EBUSY;
        }
    }
    if (is_used(in, gpu, gi, SG_MIG_ANYWHERE) || instance->used_blocks) {
        return -EBUSY;
    }
    *instance = (struct sg_gpu_instance){.in_use = 0};
    return 0;
}

/* ---- compute instances ---- */

/* A GPU instance of three or seven compute slices begins those of three and four at multiples of four, of two at
 * multiples of two. None of three lies in one of four, as `nvidia-smi mig -lcip` lists. */
uint32_t sg_mig_compute_starts(const struct sg_instance *in, uint32_t gpu, uint32_t gi,
                               uint32_t slices) {
    uint32_t whole = profile_at(in, mig_of(in, gpu)->instances[gi].profile)->slices;
    uint32_t step = slices > 2 ? 4 : slices, starts = 0;

    if (slices == 0 || slices > whole || slices == 5 || slices == 6 ||
        (slices == 3 && whole == 4)) {
        return 0;
    }
    for (uint32_t start = 0; start + slices <= whole; start += step) {
        starts |= 1u << start;
    }
    return starts;
}

static uint32_t free_compute_starts(const struct sg_instance *in, uint32_t gpu, uint32_t gi,
                                    uint32_t slices) {
    const struct sg_gpu_instance *instance = &mig_of(in, gpu)->instances[gi];
    uint32_t starts = sg_mig_compute_starts(in, gpu, gi, slices), taken = 0, fit = 0;

    for (uint32_t i = 0; i < SG_MIG_COMPUTE_INSTANCES; i++) {
        if (instance->computes[i].in_use) {
            taken |= bits(instance->computes[i].start, instance->computes[i].size);
        }
    }
    for (uint32_t start = 0; start < 8; start++) {
        if (starts >> start & 1 && !(taken & bits(start, slices))) {
            fit |= 1u << start;
        }
    }
    return fit;
}

uint32_t sg_mig_compute_remaining(const struct sg_instance *in, uint32_t gpu, uint32_t gi,
                                  uint32_t slices) {
    return (uint32_t)__builtin_popcount(free_compute_starts(in, gpu, gi, slices));
}

int sg_mig_compute_create(struct sg_instance *in, uint32_t gpu, uint32_t gi, uint32_t slices,
                          uint32_t start) {
    struct sg_gpu_instance *instance = &mig_of(in, gpu)->instances[gi];
    uint32_t fit = free_compute_starts(in, gpu, gi, slices), id = 0;

    if (start == SG_MIG_ANYWHERE) {
        if (fit == 0) {
            return -ENOSPC;
        }
        start = (uint32_t)__builtin_ctz(fit);
    } else if (start >= 8 || !(sg_mig_compute_starts(in, gpu, gi, slices) >> start & 1)) {
        return -EINVAL;
    } else if (!(fit >> start & 1)) {
        return -ENOSPC;
    }
    while (id < SG_MIG_COMPUTE_INSTANCES && instance->computes[id].in_use) {
        id++;
    }
    if (id == SG_MIG_COMPUTE_INSTANCES) {
        return -ENOSPC;
    }
    instance->computes[id] =
        (struct sg_compute_instance){.in_use = 1, .start = start, .size = slices};
    return (int)id;
}

int sg_mig_compute_destroy(struct sg_instance *in, uint32_t gpu, uint32_t gi, uint32_t ci) {
    if (is_used(in, gpu, gi, ci)) {
        return -EBUSY;
    }
    mig_of(in, gpu)->instances[gi].computes[ci] = (struct sg_compute_instance){.in_use = 0};
    return 0;
}

const struct sg_compute_instance *sg_mig_compute_instance(const struct sg_instance *in,
                                                          uint32_t place) {
    const struct sg_gpu_instance *instance =
        place ? sg_mig_gpu_instance(in, sg_place_gpu(place), sg_place_gi(place)) : NULL;

    return instance && instance->computes[sg_place_ci(place)].in_use
               ? &instance->computes[sg_place_ci(place)]
               : NULL;
}

/* All of a GPU instance's where it has all of its slices; what seven parts leave over is nobody's. */
uint32_t sg_mig_multiprocessors(const struct sg_instance *in, uint32_t profile, uint32_t slices) {
    const sim_mig_profile *p = profile_at(in, profile);

    if (slices == p->slices) {
        return p->multiprocessors;
    }
    for (uint32_t i = 0; i < machine_of(in)->mig_profile_count; i++) {
        if (profile_at(in, i)->slices == 1 && profile_at(in, i)->size == 1) {
            return slices * profile_at(in, i)->multiprocessors;
        }
    }
    return p->multiprocessors / p->slices * slices;
}

/* FNV-1a of the GPU's UUID and the ids, twice, in the form of a UUID of version 5 as the driver's are. */
void sg_mig_uuid(const struct sg_instance *in, uint32_t place, uint8_t uuid[16]) {
    const uint8_t *gpu = machine_of(in)->gpus[sg_place_gpu(place)].uuid;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (uint32_t i = 0; i < 16; i++) {
        for (uint32_t k = 0; k < 18; k++) {
            uint8_t byte =
                k < 16 ? gpu[k]
                       : (uint8_t)(k == 16 ? sg_place_gi(place) : sg_place_ci(place) + 16 * i);
            hash = (hash ^ byte) * UINT64_C(0x100000001b3);
        }
        uuid[i] = (uint8_t)(hash >> 32);
    }
    uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x50);
    uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
}

void sg_mig_name(const struct sg_instance *in, uint32_t place, char name[40]) {
    const struct sg_gpu_instance *instance =
        &mig_of(in, sg_place_gpu(place))->instances[sg_place_gi(place)];
    const sim_mig_profile *p = profile_at(in, instance->profile);
    uint32_t slices = instance->computes[sg_place_ci(place)].size;

    if (slices == p->slices) {
        snprintf(name, 40, "MIG %.23s", p->name);
    } else {
        snprintf(name, 40, "MIG %uc.%.23s", slices % 10, p->name);
    }
}

uint32_t sg_mig_minor(const struct sg_instance *in, uint32_t place, bool gpu) {
    uint32_t minor = machine_of(in)->gpus[sg_place_gpu(place)].minor;
    uint32_t first =
        3 + (minor * SG_MIG_GPU_INSTANCES + sg_place_gi(place)) * (SG_MIG_COMPUTE_INSTANCES + 1);

    return gpu ? first : first + 1 + sg_place_ci(place);
}

uint32_t sg_mig_next(const struct sg_instance *in, uint32_t gpu, uint32_t from) {
    uint32_t end = sg_place_of(gpu + 1, 0, 0);

    for (from = from ? from : sg_place_of(gpu, 0, 0); from < end; from++) {
        if (sg_mig_compute_instance(in, from)) {
            return from;
        }
    }
    return 0;
}

bool sg_mig_enter(struct sg_instance *in, uint32_t place) {
    if (!sg_mig_compute_instance(in, place)) {
        return false;
    }
    in->state->clients[in->id].place = place;
    return true;
}
