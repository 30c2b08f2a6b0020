#include "simgpu/cuda/variables.h"
#include "simgpu/cuda/ptx.h"

#include <stdlib.h>
#include <string.h>

#define VARIABLES_MAX (UINT64_C(1) << 40) /* bytes; more than any GPU has */

/* Where a variable lies that comes after the first `at` bytes of variables. */
static uint64_t aligned(uint64_t at, const struct ptx_variable *v) {
    return (at + v->align - 1) / v->align * v->align;
}

static uint64_t bytes_of(const struct image *image) {
    struct ptx_variable v;
    uint64_t bytes = image->variable_bytes;

    for (const char *next = NULL; image->ptx && bytes <= VARIABLES_MAX &&
                                  (next = ptx_next_variable(image->ptx, next, &v));) {
        bytes = aligned(bytes, &v) + v.bytes;
    }
    return bytes;
}

/* In a block of the context's that has room, or in a new one. The memory lock. */
static CUresult take_small(struct variables *variables, CUcontext ctx, uint64_t bytes) {
    struct range *range;

    variables->base = heap_take(ctx->variables, bytes, &variables->region);
    if (variables->base) {
        return CUDA_SUCCESS;
    }
    SG_TRY(range_new(ctx->device, ctx, RANGE_CODE, SG_CONTEXT, SG_BLOCK_BYTES, &range));
    range->region = heap_add(ctx->variables, range->base, range->size);
    if (!range->region) {
        range_end(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->region->range = range;
    variables->base = heap_take(ctx->variables, bytes, &variables->region);
    return CUDA_SUCCESS;
}

static CUresult take(struct variables *variables, CUcontext ctx, uint64_t bytes) {
    if (bytes <= SG_SMALL_MAX) {
        return take_small(variables, ctx, bytes);
    }
    SG_TRY(range_new(ctx->device, ctx, RANGE_CODE, SG_CONTEXT, bytes, &variables->range));
    variables->base = variables->range->base;
    return CUDA_SUCCESS;
}

static CUresult write_one(const struct ptx_variable *v, CUdeviceptr at) {
    unsigned char *contents = calloc(1, v->bytes);

    if (!contents) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (v->init) {
        ptx_initial(v, contents);
    }
    sg_copy_in(at, contents, v->bytes);
    free(contents);
    return CUDA_SUCCESS;
}

/* New blocks read as zero; a shared one may have been used. */
static CUresult write_all(const struct variables *variables, const char *ptx) {
    struct ptx_variable v;
    uint64_t at = 0;

    for (const char *next = NULL; ptx && (next = ptx_next_variable(ptx, next, &v)); at += v.bytes) {
        at = aligned(at, &v);
        if (v.init || variables->region) {
            SG_TRY(write_one(&v, variables->base + at));
        }
    }
    return CUDA_SUCCESS;
}

CUresult variables_begin(struct variables *variables, CUcontext ctx, const struct image *image) {
    uint64_t bytes = bytes_of(image);

    *variables = (struct variables){0};
    SG_REQUIRE(bytes <= VARIABLES_MAX, CUDA_ERROR_OUT_OF_MEMORY);
    SG_TRY(code_needs(ctx, image->allocates, image->prints));
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    sg_memory_lock();
    CUresult result = take(variables, ctx, bytes);
    sg_memory_unlock();
    return result == CUDA_SUCCESS ? write_all(variables, image->ptx) : result;
}

void variables_end(struct variables *variables) {
    if (!variables->base) {
        return;
    }
    sg_memory_lock();
    if (variables->range) {
        range_end(variables->range);
    } else {
        heap_give(variables->region, variables->base);
        if (variables->region->used == 0) {
            range_end(variables->region->range);
        }
    }
    sg_memory_unlock();
    *variables = (struct variables){0};
}

bool variables_find(const struct variables *variables, const struct image *image, const char *name,
                    CUdeviceptr *address, size_t *bytes) {
    struct ptx_variable v;
    uint64_t at = 0;

    for (const char *next = NULL;
         variables->base && image->ptx && (next = ptx_next_variable(image->ptx, next, &v));
         at += v.bytes) {
        at = aligned(at, &v);
        if (strlen(name) != v.length || memcmp(name, v.name, v.length) != 0) {
            continue;
        }
        if (address) {
            *address = variables->base + at;
        }
        if (bytes) {
            *bytes = v.bytes;
        }
        return true;
    }
    return false;
}
