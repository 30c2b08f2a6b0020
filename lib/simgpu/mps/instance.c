/* Daemons and servers of a MIG device. MIG user guide, CUDA MPS: a daemon serves a MIG device when its CUDA_VISIBLE_DEVICES
 * names it, and takes clients in proportion to the size of the compute instance. */
#define _GNU_SOURCE
#include "simgpu/machine/visible.h"
#include "simgpu/mps/server.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_named(const struct sg_instance *in, uint32_t place, const char *word,
                     size_t length) {
    uint8_t uuid[16];
    char name[48], *at = name + sprintf(name, "MIG-");

    sg_mig_uuid(in, place, uuid);
    for (unsigned i = 0; i < 16; i++) {
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
    }
    return strlen(name) == length && strncasecmp(name, word, length) == 0;
}

uint32_t mps_own_place(struct sg_instance *in) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    size_t length = visible ? strcspn(visible, ",") : 0;
    uint32_t found = 0;

    sg_state_lock(in);
    for (uint32_t gpu = 0; length > 0 && gpu < in->state->gpu_count; gpu++) {
        for (uint32_t p = 0; sg_mig_on(in, gpu) && (p = sg_mig_next(in, gpu, p)) != 0; p++) {
            found = is_named(in, p, visible, length) ? p : found;
        }
    }
    sg_state_unlock(in);
    return found;
}

/* Compute slices of the whole GPU: those of its largest profile. */
static uint32_t slices_of(const sim_machine *machine) {
    uint32_t most = 1;

    for (uint32_t i = 0; i < machine->mig_profile_count; i++) {
        most = machine->mig_profiles[i].slices > most ? machine->mig_profiles[i].slices : most;
    }
    return most;
}

uint32_t mps_clients_of(struct sg_instance *in, uint32_t place, uint32_t most) {
    size_t bytes;
    const sim_machine *machine = sg_state_machine(in, &bytes);
    uint32_t slices = slices_of(machine);

    if (place == 0) {
        return most;
    }
    sg_state_lock(in);
    const struct sg_compute_instance *own = sg_mig_compute_instance(in, place);
    uint32_t part = own ? most * own->size / slices : 0;
    sg_state_unlock(in);
    return part ? part : 1;
}

/* By CUDA's numbers of the GPUs that a daemon or a server sees. */
unsigned mps_gpus(struct sg_instance *in, uint32_t gpus[SG_GPUS_MAX]) {
    size_t bytes;
    const sim_machine *machine = sg_state_machine(in, &bytes);
    struct sg_sight sight = {.visible = getenv("CUDA_VISIBLE_DEVICES"),
                             .order = getenv("CUDA_DEVICE_ORDER"),
                             .hidden = sg_hidden(in, machine, in->dir)};
    uint32_t place = mps_own_place(in);

    if (place) {
        gpus[0] = sg_place_gpu(place);
        return 1;
    }
    return sg_visible(machine, &sight, gpus);
}
