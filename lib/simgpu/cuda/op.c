/* What operations do to memory. Effects happen when an operation is issued; when it counts as done
 * is a matter of the schedule. */
#include "simgpu/cuda/graph.h"
#include "simgpu/cuda/ptx.h"
#include "simgpu/cuda/touch.h"

#include <stdlib.h>
#include <string.h>

static bool is_device(const struct placement *place) {
    return place->type == CU_MEMORYTYPE_DEVICE || place->type == CU_MEMORYTYPE_UNIFIED;
}

/* Whether so many from a place on are there. */
static bool fits(uint64_t from, uint64_t count, uint64_t there) {
    return from <= there && count <= there - from;
}

/* Memory of a graph is there when the graph runs, not yet when an operation becomes part of it. */
static bool reaches(CUdeviceptr address, uint64_t bytes, bool later) {
    return sg_mapped(address, bytes) || (later && graph_memory_covers(address, bytes));
}

static CUresult check_place(const struct placement *place, const struct copy *copy, bool later) {
    if (place->type == CU_MEMORYTYPE_ARRAY) {
        const struct CUarray_st *array = place->array;
        SG_REQUIRE(handle_given(array, HANDLE_ARRAY), CUDA_ERROR_INVALID_HANDLE);
        size_t height = array->what.Height ? array->what.Height : 1;
        size_t depth = array->what.Depth ? array->what.Depth : 1;
        SG_REQUIRE(array->base && fits(place->x, copy->width, array->row) &&
                       fits(place->y, copy->height, height) && fits(place->z, copy->depth, depth),
                   CUDA_ERROR_INVALID_VALUE);
        return CUDA_SUCCESS;
    }
    SG_REQUIRE(place->address && (is_device(place) || place->type == CU_MEMORYTYPE_HOST),
               CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(copy->height <= 1 || place->pitch >= copy->width, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(op_extent(place, copy) <= UINT64_MAX - place->address, CUDA_ERROR_INVALID_VALUE);
    /* A unified address outside the device's is the CPU's own business. */
    if (place->type == CU_MEMORYTYPE_UNIFIED && !pages_hold(place->address)) {
        return CUDA_SUCCESS;
    }
    if (is_device(place)) {
        SG_REQUIRE(reaches(place->address, op_extent(place, copy), later),
                   CUDA_ERROR_INVALID_VALUE);
    }
    return CUDA_SUCCESS;
}

static CUresult check_fill(const struct fill *fill, bool later) {
    SG_REQUIRE(fill->element == 1 || fill->element == 2 || fill->element == 4,
               CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(fill->to % fill->element == 0, CUDA_ERROR_INVALID_VALUE);
    if (fill->width == 0 || fill->height == 0) {
        return CUDA_SUCCESS;
    }
    uint64_t row, all;
    SG_REQUIRE(!__builtin_mul_overflow(fill->width, fill->element, &row), CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(fill->height == 1 || (fill->pitch >= row && fill->pitch % fill->element == 0),
               CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(!__builtin_mul_overflow(fill->height - 1, fill->pitch, &all) &&
                   !__builtin_add_overflow(all, row, &all) && reaches(fill->to, all, later),
               CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult op_check(const struct stream_op *op, bool later) {
    const struct copy *copy = &op->copy;

    switch (op->kind) {
    case OP_COPY:
        if (copy->width == 0 || copy->height == 0 || copy->depth == 0) {
            return CUDA_SUCCESS;
        }
        SG_TRY(check_place(&copy->to, copy, later));
        return check_place(&copy->from, copy, later);
    case OP_FILL:
        return check_fill(&op->fill, later);
    default:
        return CUDA_SUCCESS;
    }
}

/* An array's contents lie in device memory row by row, so one end of a copy can be written as
   such. */
static struct placement flat(const struct placement *place) {
    struct placement out = *place;

    if (place->type == CU_MEMORYTYPE_ARRAY) {
        const struct CUarray_st *array = place->array;
        out.address = array->base + place->z * array->slice + place->y * array->row + place->x;
        out.pitch = array->row;
        out.slice = array->slice;
        out.type = CU_MEMORYTYPE_DEVICE;
    }
    return out;
}

static void copy_bytes(const struct placement *to, uint64_t target, const struct placement *from,
                       uint64_t source, uint64_t n) {
    bool to_pages = is_device(to) && pages_hold(target);
    bool from_pages = is_device(from) && pages_hold(source);

    if (to_pages && from_pages) {
        sg_copy_within(target, source, n);
    } else if (to_pages) {
        sg_copy_in(target, managed_contents(source), n);
    } else if (from_pages) {
        sg_copy_out(managed_contents(target), source, n);
    } else {
        memmove(managed_contents(target), managed_contents(source), n);
    }
}

static void perform_copy(const struct copy *copy) {
    uint64_t width = copy->width, height = copy->height, depth = copy->depth;

    /* Of a copy of nothing nobody has looked whether there are such places. */
    if (width == 0 || height == 0 || depth == 0) {
        return;
    }
    struct placement to = flat(&copy->to), from = flat(&copy->from);
    /* Rows without gaps on both sides are one long row, and so are slices. */
    if (to.pitch == width && from.pitch == width) {
        if (depth == 1 || (to.slice == width * height && from.slice == width * height)) {
            width *= height * depth;
            height = depth = 1;
        }
    }
    for (uint64_t z = 0; z < depth; z++) {
        for (uint64_t y = 0; y < height; y++) {
            copy_bytes(&to, to.address + z * to.slice + y * to.pitch, &from,
                       from.address + z * from.slice + y * from.pitch, width);
        }
    }
}

static void perform_fill(const struct fill *fill) {
    unsigned char byte = (unsigned char)fill->value;
    unsigned short half = (unsigned short)fill->value;
    const void *pattern = fill->element == 1   ? (const void *)&byte
                          : fill->element == 2 ? (const void *)&half
                                               : (const void *)&fill->value;

    for (size_t y = 0; fill->width && y < fill->height; y++) {
        sg_fill(fill->to + y * fill->pitch, pattern, fill->element, fill->width);
    }
}

static void perform_values(const struct values *values) {
    for (unsigned i = 0; i < values->count; i++) {
        const CUstreamBatchMemOpParams *v = &values->list[i];
        if (v->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32) {
            sg_copy_in(v->writeValue.address, &v->writeValue.value, 4);
        } else if (v->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64) {
            sg_copy_in(v->writeValue.address, &v->writeValue.value64, 8);
        }
    }
}

static struct sg_work perform(const struct stream_op *op, struct device *device) {
    uint64_t kernel_ns = 0;

    switch (op->kind) {
    case OP_KERNEL:
        kernel_ns = kernel_run(&op->launch);
        break;
    case OP_COPY:
        perform_copy(&op->copy);
        break;
    case OP_FILL:
        perform_fill(&op->fill);
        break;
    case OP_VALUES:
        perform_values(&op->values);
        break;
    case OP_FREE:
        sg_memory_lock();
        sg_free(op->memory.address);
        sg_memory_unlock();
        break;
    default:
        break;
    }
    return op_work(op, device, kernel_ns);
}

struct sg_work op_perform(const struct stream_op *op, struct device *device) {
    struct touches touches = {0};

    if (!managed_any()) {
        return perform(op, device);
    }
    touch_collect(op, &touches);
    struct sg_work work = perform(op, device);
    if (touches.count) {
        work.ns = work.ns ? work.ns : 1;
        work.touches = touches.list;
        work.touch_count = touches.count;
    }
    return work;
}

void op_given(struct sg_work *work) {
    if (work->touch_count) {
        free((void *)(uintptr_t)work->touches);
        work->touches = NULL;
        work->touch_count = 0;
    }
}

/* The same of a kernel that is not known by name, whose text tells its parameters: the pointers, then the values. */
static bool keep_named(struct launch *launch) {
    const char *entry = launch->function->entry;
    struct ptx_variable param;
    uint64_t at, end = 0;
    size_t n = 0;

    for (; entry && ptx_param(entry, n, &param, &at); n++) {
        end = at + param.bytes;
    }
    char *packed = calloc(1, n * sizeof(void *) + end + 1);
    if (!packed) {
        return false;
    }
    void **params = (void **)(void *)packed;
    for (size_t i = 0; i < n && ptx_param(entry, i, &param, &at); i++) {
        params[i] = packed + n * sizeof(void *) + at;
        memcpy(params[i], launch->params[i], param.bytes);
    }
    launch->params = params;
    return true;
}

/* The parameters of a launch are read when it is given, so a launch that waits needs a copy of
 * them. */
static bool keep_params(struct launch *launch) {
    const size_t *sizes;
    size_t n = kernel_param_count(launch->function->known, &sizes);
    char *packed;

    if (launch->buffer) {
        if (!(packed = malloc(launch->buffer_bytes + 1))) {
            return false;
        }
        memcpy(packed, launch->buffer, launch->buffer_bytes);
        launch->buffer = packed;
        return true;
    }
    if (n == 0 && launch->params && sg_driver.machine->named_touched) {
        return keep_named(launch);
    }
    if (n == 0 || !launch->params) {
        launch->params = NULL;
        return true;
    }
    /* One piece: the pointers, then 8 bytes for each value. */
    if (!(packed = calloc(n, sizeof(void *) + 8))) {
        return false;
    }
    void **params = (void **)packed;
    for (size_t i = 0; i < n; i++) {
        params[i] = packed + n * sizeof(void *) + i * 8;
        memcpy(params[i], launch->params[i], sizes[i]);
    }
    launch->params = params;
    return true;
}

struct stream_op *op_keep(const struct stream_op *op) {
    struct stream_op *kept = malloc(sizeof *kept);

    if (!kept) {
        return NULL;
    }
    *kept = *op;
    kept->next = NULL;
    kept->barriers = NULL;
    kept->barrier_count = 0;
    kept->ticket = 0;
    kept->running = false;
    bool ok = true;
    if (op->kind == OP_KERNEL) {
        ok = keep_params(&kept->launch);
    } else if (op->kind == OP_VALUES && op->values.count) {
        size_t bytes = op->values.count * sizeof *op->values.list;
        ok = (kept->values.list = malloc(bytes)) != NULL;
        if (ok) {
            memcpy(kept->values.list, op->values.list, bytes);
        }
    }
    if (ok) {
        return kept;
    }
    free(kept);
    return NULL;
}

void op_drop(struct stream_op *op) {
    if (op->kind == OP_KERNEL) {
        free((void *)op->launch.buffer);
        if (!op->launch.buffer) {
            free(op->launch.params);
        }
    } else if (op->kind == OP_VALUES) {
        free(op->values.list);
    }
    free(op->barriers);
    free(op);
}
