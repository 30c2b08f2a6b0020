/* The length of time slices, as `nvidia-smi compute-policy` sets it. */
#include "simgpu/machine/state.h"

enum sg_slice_level sg_slice_level(const struct sg_instance *in, uint32_t gpu) {
    uint32_t level = __atomic_load_n(&in->state->gpus[gpu].slice_level, __ATOMIC_RELAXED);

    return level < SG_SLICE_LEVELS ? (enum sg_slice_level)level : SG_SLICE_DEFAULT;
}

void sg_slice_level_set(struct sg_instance *in, uint32_t gpu, enum sg_slice_level level) {
    __atomic_store_n(&in->state->gpus[gpu].slice_level, (uint32_t)level, __ATOMIC_RELAXED);
}

/* NVIDIA names the levels and does not publish their lengths: the driver chooses them "as per GPU support"
 * (ctrl2080gpu.h of the open kernel modules). The order of short, medium and long is all that is known. */
uint64_t sg_slice_ns(const struct sg_instance *in, uint32_t gpu) {
    uint64_t usual = in->state->slice_ns;

    switch (sg_slice_level(in, gpu)) {
    case SG_SLICE_SHORT:
        return usual / 2 ? usual / 2 : 1;
    case SG_SLICE_MEDIUM:
        return usual * 2;
    case SG_SLICE_LONG:
        return usual * 4;
    default:
        return usual;
    }
}
