// SPDX-License-Identifier: GPL-2.0
#include "host_driver.h"

/* Numbers and names as the vendor's lists have them. */
const struct vgpu_type vgpu_types[VGPU_TYPES] = {
    {.id = 470, .number = "470", .memory = 8192, .name = "NVIDIA A100-8C"},
    {.id = 471, .number = "471", .memory = 10240, .name = "NVIDIA A100-10C"},
    {.id = 472, .number = "472", .memory = 20480, .name = "NVIDIA A100-20C"},
    {.id = 474, .number = "474", .memory = 40960, .name = "NVIDIA A100-40C"},
    {.id = 475, .number = "475", .memory = 5120, .backed = true, .name = "NVIDIA A100-1-5C"},
};

const struct vgpu_type *vgpu_type_of(unsigned int id) {
    for (unsigned int i = 0; i < VGPU_TYPES; i++) {
        if (vgpu_types[i].id == id) {
            return &vgpu_types[i];
        }
    }
    return NULL;
}

static unsigned int left(struct gpu *gpu, const struct vgpu_type *type, unsigned int instance) {
    if (type->backed) {
        bool free = instance < BITS_PER_LONG && gpu->instances & ~gpu->taken & BIT(instance);

        return free ? 1 : 0;
    }
    /* A GPU that is divided into instances has no vGPUs beside them, and vGPUs of one GPU have one size. */
    if (gpu->instances || instance != NO_INSTANCE) {
        return 0;
    }
    if (gpu->vgpus && gpu->size != type->memory && !is_mixed()) {
        return 0;
    }
    return (GPU_MEMORY - gpu->used) / type->memory;
}

unsigned int gpu_left(struct gpu *gpu, const struct vgpu_type *type, unsigned int instance) {
    unsigned int count;

    mutex_lock(&gpu->ledger);
    count = left(gpu, type, instance);
    mutex_unlock(&gpu->ledger);
    return count;
}

int gpu_take(struct gpu *gpu, const struct vgpu_type *type, unsigned int instance) {
    int result = 0;

    mutex_lock(&gpu->ledger);
    if (type->backed && instance == NO_INSTANCE) {
        result = -EINVAL;
    } else if (left(gpu, type, instance) == 0) {
        result = -ENOSPC;
    } else if (type->backed) {
        gpu->taken |= BIT(instance);
    } else {
        gpu->used += type->memory;
        gpu->size = type->memory;
        gpu->vgpus++;
    }
    mutex_unlock(&gpu->ledger);
    return result;
}

void gpu_give_back(struct gpu *gpu, const struct vgpu_type *type, unsigned int instance) {
    mutex_lock(&gpu->ledger);
    if (type->backed) {
        gpu->taken &= ~BIT(instance);
    } else {
        gpu->used -= type->memory;
        gpu->vgpus--;
    }
    mutex_unlock(&gpu->ledger);
}
