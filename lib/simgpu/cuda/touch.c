/* What operations touch of managed memory: kernels what is known of them, copies and fills what they name. */
#include "simgpu/cuda/touch.h"

#include <stdlib.h>

#include "simgpu/cuda/ptx.h"

static struct sg_touch *more(struct touches *touches) {
    if (touches->count == touches->room) {
        uint32_t room = touches->room ? touches->room * 2 : 4;
        struct sg_touch *list = realloc(touches->list, room * sizeof *list);
        if (!list) {
            return NULL;
        }
        touches->list = list;
        touches->room = room;
    }
    return &touches->list[touches->count];
}

/* Adds an area, gone through as `how` says. */
static void add(struct touches *touches, CUdeviceptr address, uint64_t bytes, struct sg_touch how) {
    struct sg_touch area, *place;

    if (bytes == 0 || pages_hold(address)) {
        return;
    }
    sg_memory_lock();
    bool managed = managed_area(address, bytes, &area);
    sg_memory_unlock();
    if (managed && (place = more(touches)) != NULL) {
        how.first = area.first;
        how.chunks = area.chunks;
        *place = how;
        touches->count++;
    }
}

static const struct sg_touch reading = {.kind = SG_SWEEP, .reads = 1},
                             writing = {.kind = SG_SWEEP, .writes = 1},
                             both = {.kind = SG_SWEEP, .reads = 1, .writes = 1};

/* ---- kernels ---- */

static void add_gone_through(const struct launch *launch, enum sg_touch_kind kind,
                             struct touches *touches) {
    uint64_t order = kernel_param(launch, 4);

    add(touches, kernel_param(launch, 0), kernel_param(launch, 1),
        (struct sg_touch){.kind = (uint8_t)kind,
                          .order = order < SG_TOUCH_ORDERS ? (uint8_t)order : SG_FORWARD,
                          .reads = (uint32_t)kernel_param(launch, 2),
                          .writes = (uint32_t)kernel_param(launch, 3),
                          .seed = (uint32_t)kernel_param(launch, 5)});
}

/* The whole allocation that a parameter points into. */
static void add_named(uint64_t value, struct touches *touches) {
    sg_memory_lock();
    const struct host_range *host = managed_of(value, 1);
    CUdeviceptr base = host ? host->base : 0;
    uint64_t bytes = host ? host->size : 0;
    sg_memory_unlock();
    add(touches, base, bytes, both);
}

static void add_parameters(const struct launch *launch, struct touches *touches) {
    struct ptx_variable param;
    uint64_t at, value;

    for (size_t i = 0;
         launch->function->entry && ptx_param(launch->function->entry, i, &param, &at); i++) {
        if (param.bytes == sizeof value && launch_param(launch, i, at, &value, sizeof value)) {
            add_named(value, touches);
        }
    }
}

static void add_kernel(const struct launch *launch, struct touches *touches) {
    uint64_t n;

    switch (launch->function->known) {
    case KERNEL_VECADD:
        n = kernel_param(launch, 3) * 4;
        add(touches, kernel_param(launch, 0), n, reading);
        add(touches, kernel_param(launch, 1), n, reading);
        add(touches, kernel_param(launch, 2), n, writing);
        break;
    case KERNEL_FILL:
        add(touches, kernel_param(launch, 0), kernel_param(launch, 2) * 4, writing);
        break;
    case KERNEL_AWAIT:
        add(touches, kernel_param(launch, 0), 4, reading);
        break;
    case KERNEL_SWEEP:
        add_gone_through(launch, SG_SWEEP, touches);
        break;
    case KERNEL_SCATTER:
        add_gone_through(launch, SG_SCATTER, touches);
        break;
    case KERNEL_OTHER:
        if (sg_driver.machine->named_touched) {
            add_parameters(launch, touches);
        }
        break;
    case KERNEL_BUSY:
    case KERNEL_FAULT:
        break;
    }
}

/* ---- copies ---- */

/* Memory that a copy names as the host's is the CPU's to touch, which happens when the copy is issued. */
static void host_side(const struct placement *place, uint64_t bytes, bool write) {
    struct sg_touch area;

    sg_memory_lock();
    if (managed_area(place->address, bytes, &area)) {
        sg_chunks_host(&sg_driver.instance, area.first, area.chunks, write);
    }
    sg_memory_unlock();
}

uint64_t op_extent(const struct placement *place, const struct copy *copy) {
    uint64_t slices, rows, all;

    if (__builtin_mul_overflow(copy->depth - 1, place->slice, &slices) ||
        __builtin_mul_overflow(copy->height - 1, place->pitch, &rows) ||
        __builtin_add_overflow(slices, rows, &all) ||
        __builtin_add_overflow(all, copy->width, &all)) {
        return UINT64_MAX;
    }
    return all;
}

static void add_side(const struct placement *place, const struct copy *copy, bool write,
                     struct touches *touches) {
    uint64_t bytes = op_extent(place, copy);

    if (place->type == CU_MEMORYTYPE_HOST) {
        host_side(place, bytes, write);
    } else if (place->type != CU_MEMORYTYPE_ARRAY) {
        add(touches, place->address, bytes, write ? writing : reading);
    }
}

void touch_collect(const struct stream_op *op, struct touches *touches) {
    const struct fill *fill = &op->fill;

    switch (op->kind) {
    case OP_KERNEL:
        add_kernel(&op->launch, touches);
        break;
    case OP_COPY:
        if (op->copy.width && op->copy.height && op->copy.depth) {
            add_side(&op->copy.from, &op->copy, false, touches);
            add_side(&op->copy.to, &op->copy, true, touches);
        }
        break;
    case OP_FILL:
        if (fill->width && fill->height) {
            add(touches, fill->to, (fill->height - 1) * fill->pitch + fill->width * fill->element,
                writing);
        }
        break;
    case OP_PREFETCH:
        add(touches, op->prefetch.address, op->prefetch.bytes,
            (struct sg_touch){.kind = op->prefetch.to_host ? SG_PREFETCH_HOST : SG_PREFETCH});
        break;
    default:
        break;
    }
}
