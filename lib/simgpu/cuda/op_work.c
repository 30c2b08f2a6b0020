/* What operations take of a GPU: how long, and which parts of it. */
#include "simgpu/cuda/touch.h"

/* Whole nanoseconds, at least one: everything that is done takes time. */
static uint64_t time_of(uint64_t bytes, uint64_t rate) {
    uint64_t ns = (uint64_t)((double)bytes * 1e9 / (double)rate);

    return ns ? ns : 1;
}

static struct sg_work everywhere(const struct device *device, uint64_t ns) {
    return (struct sg_work){.ns = ns,
                            .engine = SG_ON_MULTIPROCESSORS,
                            .multiprocessors = device->model->multiprocessors};
}

/* A kernel takes one multiprocessor for each block. */
static struct sg_work kernel_work(const struct launch *launch, const struct device *device,
                                  uint64_t ns) {
    uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1];
    struct sg_work work = everywhere(device, ns);

    if (blocks < work.multiprocessors && blocks * launch->grid[2] < work.multiprocessors) {
        work.multiprocessors = (uint32_t)(blocks * launch->grid[2]);
    }
    return work;
}

/* Managed memory has come to the GPU when a copy reads or writes it. */
static bool is_managed(CUdeviceptr address) {
    if (!managed_any()) {
        return false;
    }
    sg_memory_lock();
    bool managed = managed_of(address, 1) != NULL;
    sg_memory_unlock();
    return managed;
}

/* The GPU whose memory one side of a copy is; SG_GPUS_MAX for the host's. */
static uint32_t side(const struct placement *place, const struct device *device) {
    uint64_t address =
        place->type == CU_MEMORYTYPE_ARRAY ? place->array->base + place->x : place->address;

    if (place->type == CU_MEMORYTYPE_HOST || !pages_hold(address)) {
        return place->type != CU_MEMORYTYPE_HOST && is_managed(address) ? device->gpu : SG_GPUS_MAX;
    }
    const struct page *page = page_of(address);
    return page ? page->gpu : SG_GPUS_MAX;
}

/* A copy within one GPU's memory uses all multiprocessors. Any other copy goes over the link to the
 * host, by the copy engine of its direction as seen from the stream's GPU. */
static struct sg_work copy_work(const struct copy *copy, const struct device *device) {
    uint64_t bytes = (uint64_t)copy->width * copy->height * copy->depth;

    if (bytes == 0) {
        return (struct sg_work){0};
    }
    uint32_t to = side(&copy->to, device), from = side(&copy->from, device);
    if (to == SG_GPUS_MAX && from == SG_GPUS_MAX) {
        return (struct sg_work){0};
    }
    if (to == from) {
        return everywhere(device, time_of(2 * bytes, device->model->memory_rate));
    }
    return (struct sg_work){.ns = time_of(bytes, device->model->host_rate),
                            .engine = to == device->gpu ? SG_ON_COPY_IN : SG_ON_COPY_OUT};
}

struct sg_work op_work(const struct stream_op *op, const struct device *device,
                       uint64_t kernel_ns) {
    switch (op->kind) {
    case OP_KERNEL:
        return kernel_work(&op->launch, device, kernel_ns);
    case OP_COPY:
        return copy_work(&op->copy, device);
    case OP_FILL:
        if (op->fill.width && op->fill.height) {
            return everywhere(device,
                              time_of((uint64_t)op->fill.width * op->fill.element * op->fill.height,
                                      device->model->memory_rate));
        }
        break;
    case OP_PREFETCH: /* it takes none of the GPU; its stream waits for it */
        return (struct sg_work){.ns = 1, .engine = SG_ON_NONE};
    case OP_RECORD:
        return (struct sg_work){.ns = sg_driver.machine->event_ns, .engine = SG_ON_NONE};
    default:
        break;
    }
    return (struct sg_work){0};
}
