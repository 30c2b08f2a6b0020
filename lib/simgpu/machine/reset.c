/* Resets of a GPU: what keeps it from one, and what one undoes. */
#define _GNU_SOURCE
#include "simgpu/machine/state.h"

#include <errno.h>

int sg_reset(struct sg_instance *in, uint32_t gpu) {
    struct sg_faults *faults = &in->state->gpus[gpu].faults;

    sg_reap_gpu(in, gpu);
    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        if (in->state->clients[i].contexts[gpu] != 0 || sg_client_used(in, i, gpu) != 0) {
            return -EBUSY;
        }
    }
    sg_slice_level_set(in, gpu, SG_SLICE_DEFAULT);
    sg_mig_reset(in, gpu);
    __atomic_fetch_add(&faults->resets, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&faults->silence, 0, __ATOMIC_RELEASE);
    return 0;
}

int sg_reset_by_driver(struct sg_instance *in, uint32_t gpu) {
    if (in->state->gpus[gpu].faults.unresettable) {
        return -EOPNOTSUPP;
    }
    return sg_opened_elsewhere(in, gpu) ? -EBUSY : sg_reset(in, gpu);
}
