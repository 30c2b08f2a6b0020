/* Arrays and mipmapped arrays. Their contents lie row by row in device memory of their own, in
 * whole blocks; those with deferred mapping and sparse ones have none until something is mapped. */
#include "simgpu/cuda/driver.h"

#include <stdlib.h>

struct CUmipmappedArray_st {
    struct handle handle;
    CUcontext ctx;
    CUDA_ARRAY3D_DESCRIPTOR what;
    unsigned level_count;
    uint64_t bytes;
    struct range *range;
    CUarray *levels;
    struct link of_context;
};

#define UNBACKED (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)
#define ARRAY_ALIGNMENT 65536u /* of deferred arrays: what cuArrayGetMemoryRequirements tells */

static unsigned element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *what) {
    unsigned width;

    switch (what->Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        width = 1;
        break;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        width = 2;
        break;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        width = 4;
        break;
    default:
        return 0;
    }
    return what->NumChannels == 1 || what->NumChannels == 2 || what->NumChannels == 4
               ? width * what->NumChannels
               : 0;
}

static CUresult check(const CUDA_ARRAY3D_DESCRIPTOR *what) {
    SG_REQUIRE(what && element_bytes(what), CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(what->Width && what->Width <= 131072 && what->Height <= 131072 &&
                   what->Depth <= 16384,
               CUDA_ERROR_INVALID_VALUE);
    if (what->Flags & CUDA_ARRAY3D_CUBEMAP) {
        SG_REQUIRE(what->Width == what->Height && what->Depth % 6 == 0 && what->Depth,
                   CUDA_ERROR_INVALID_VALUE);
    }
    return CUDA_SUCCESS;
}

static size_t one_at_least(size_t n) {
    return n ? n : 1;
}

static void measure(CUarray array, const CUDA_ARRAY3D_DESCRIPTOR *what) {
    array->what = *what;
    array->element = element_bytes(what);
    array->row = what->Width * array->element;
    array->slice = array->row * one_at_least(what->Height);
    array->bytes = array->slice * one_at_least(what->Depth);
}

static CUresult create(CUcontext ctx, CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *what) {
    SG_REQUIRE(out, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(check(what));
    SG_TRY(capture_allows(ctx));
    CUarray array = handle_new(HANDLE_ARRAY, sizeof *array);
    if (!array) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    measure(array, what);
    array->ctx = ctx;
    sg_burn(sg_driver.machine->alloc_ns);
    CUresult result = CUDA_SUCCESS;
    sg_memory_lock();
    if (!(what->Flags & UNBACKED)) {
        result = range_new(ctx->device, ctx, RANGE_OWN, SG_ARRAY, array->bytes, &array->range);
        if (result == CUDA_SUCCESS) {
            array->base = array->range->base;
        }
    }
    if (result == CUDA_SUCCESS) {
        link_add(&ctx->arrays, &array->of_context);
    }
    sg_memory_unlock();
    if (result == CUDA_SUCCESS) {
        *out = array;
    } else {
        handle_end(array, HANDLE_ARRAY);
    }
    return result;
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *what) {
    SG_ENTER(ctx, SG_FAULT_ALLOC)
    return create(ctx, array, what);
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *what) {
    SG_ENTER(ctx, SG_FAULT_ALLOC)
    SG_REQUIRE(what, CUDA_ERROR_INVALID_VALUE);
    CUDA_ARRAY3D_DESCRIPTOR wide = {.Width = what->Width,
                                    .Height = what->Height,
                                    .Format = what->Format,
                                    .NumChannels = what->NumChannels};
    return create(ctx, array, &wide);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *what, CUarray array) {
    SG_REQUIRE(array, CUDA_ERROR_INVALID_HANDLE);
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(what, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(handle_given(array, HANDLE_ARRAY), CUDA_ERROR_INVALID_HANDLE);
    *what = array->what;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *what, CUarray array) {
    SG_REQUIRE(array, CUDA_ERROR_INVALID_HANDLE);
    SG_ENTER(ctx, SG_FAULT_OTHER)
    SG_REQUIRE(what, CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(handle_given(array, HANDLE_ARRAY), CUDA_ERROR_INVALID_HANDLE);
    *what = (CUDA_ARRAY_DESCRIPTOR){array->what.Width, array->what.Height, array->what.Format,
                                    array->what.NumChannels};
    return CUDA_SUCCESS;
}

static void end_array(CUarray array) {
    link_remove(&array->of_context);
    if (array->range) {
        range_end(array->range);
    }
    handle_end(array, HANDLE_ARRAY);
}

CUresult cuArrayDestroy(CUarray array) {
    SG_READY();
    SG_REQUIRE(handle_given(array, HANDLE_ARRAY), CUDA_ERROR_INVALID_HANDLE);
    /* A level belongs to its mipmapped array. */
    SG_REQUIRE(!array->parent, CUDA_ERROR_ARRAY_IS_MAPPED);
    if (__atomic_load_n(&array->ctx->deferred, __ATOMIC_ACQUIRE)) {
        SG_TRY(sg_drain_context(array->ctx));
    }
    sg_memory_lock();
    end_array(array);
    sg_memory_unlock();
    return CUDA_SUCCESS;
}

/* ---- mipmapped arrays ---- */

static CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR *what, unsigned level) {
    CUDA_ARRAY3D_DESCRIPTOR out = *what;
    bool layers = what->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);

    out.Width = one_at_least(what->Width >> level);
    out.Height = what->Height ? one_at_least(what->Height >> level) : 0;
    out.Depth = what->Depth && !layers ? one_at_least(what->Depth >> level) : what->Depth;
    return out;
}

static void end_mipmap(CUmipmappedArray mipmap) {
    link_remove(&mipmap->of_context);
    for (unsigned i = 0; i < mipmap->level_count; i++) {
        if (mipmap->levels[i]) {
            end_array(mipmap->levels[i]);
        }
    }
    free(mipmap->levels);
    if (mipmap->range) {
        range_end(mipmap->range);
    }
    handle_end(mipmap, HANDLE_MIPMAP);
}

/* The memory lock. Makes the levels, one behind the other. */
static CUresult fill_mipmap(CUmipmappedArray mipmap) {
    CUdeviceptr base = 0;

    for (unsigned i = 0; i < mipmap->level_count; i++) {
        CUDA_ARRAY3D_DESCRIPTOR what = level_of(&mipmap->what, i);
        CUarray level = handle_new(HANDLE_ARRAY, sizeof *level);
        if (!level) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        measure(level, &what);
        level->ctx = mipmap->ctx;
        level->parent = mipmap;
        link_init(&level->of_context);
        mipmap->levels[i] = level;
        mipmap->bytes += level->bytes;
    }
    if (mipmap->what.Flags & UNBACKED) {
        return CUDA_SUCCESS;
    }
    SG_TRY(range_new(mipmap->ctx->device, mipmap->ctx, RANGE_OWN, SG_ARRAY, mipmap->bytes,
                     &mipmap->range));
    base = mipmap->range->base;
    for (unsigned i = 0; i < mipmap->level_count; i++) {
        mipmap->levels[i]->base = base;
        base += mipmap->levels[i]->bytes;
    }
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *what,
                                unsigned int levels) {
    SG_ENTER(ctx, SG_FAULT_ALLOC)
    SG_REQUIRE(out && levels, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(check(what));
    SG_TRY(capture_allows(ctx));
    size_t longest = what->Width > what->Height ? what->Width : what->Height;
    unsigned most = 64u - (unsigned)__builtin_clzll(longest);
    CUmipmappedArray mipmap = handle_new(HANDLE_MIPMAP, sizeof *mipmap);
    if (!mipmap) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    mipmap->ctx = ctx;
    mipmap->what = *what;
    mipmap->level_count = levels < most ? levels : most;
    mipmap->levels = calloc(mipmap->level_count, sizeof *mipmap->levels);
    link_init(&mipmap->of_context);
    sg_burn(sg_driver.machine->alloc_ns);
    sg_memory_lock();
    CUresult result = mipmap->levels ? fill_mipmap(mipmap) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        link_add(&ctx->mipmaps, &mipmap->of_context);
    } else {
        end_mipmap(mipmap);
    }
    sg_memory_unlock();
    if (result == CUDA_SUCCESS) {
        *out = mipmap;
    }
    return result;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap) {
    SG_READY();
    SG_REQUIRE(handle_given(mipmap, HANDLE_MIPMAP), CUDA_ERROR_INVALID_HANDLE);
    if (__atomic_load_n(&mipmap->ctx->deferred, __ATOMIC_ACQUIRE)) {
        SG_TRY(sg_drain_context(mipmap->ctx));
    }
    sg_memory_lock();
    end_mipmap(mipmap);
    sg_memory_unlock();
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray *level, CUmipmappedArray mipmap, unsigned int number) {
    SG_REQUIRE(mipmap, CUDA_ERROR_INVALID_HANDLE);
    SG_READY();
    SG_REQUIRE(handle_given(mipmap, HANDLE_MIPMAP), CUDA_ERROR_INVALID_HANDLE);
    SG_REQUIRE(level && number < mipmap->level_count, CUDA_ERROR_INVALID_VALUE);
    *level = mipmap->levels[number];
    return CUDA_SUCCESS;
}

void arrays_end_context(CUcontext ctx) {
    while (ctx->mipmaps.next != &ctx->mipmaps) {
        end_mipmap(CONTAINER(ctx->mipmaps.next, struct CUmipmappedArray_st, of_context));
    }
    while (ctx->arrays.next != &ctx->arrays) {
        end_array(CONTAINER(ctx->arrays.next, struct CUarray_st, of_context));
    }
}

/* ---- requirements: only of arrays without memory of their own, as documented ---- */

static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, unsigned flags, uint64_t bytes,
                             CUdevice device) {
    SG_REQUIRE(out && (flags & UNBACKED), CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(sg_device(device), CUDA_ERROR_INVALID_DEVICE);
    *out = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = (bytes + ARRAY_ALIGNMENT - 1) /
                                                    ARRAY_ALIGNMENT * ARRAY_ALIGNMENT,
                                            .alignment = ARRAY_ALIGNMENT};
    return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUarray array,
                                      CUdevice device) {
    SG_REQUIRE(out && array, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    SG_REQUIRE(handle_given(array, HANDLE_ARRAY), CUDA_ERROR_INVALID_HANDLE);
    return requirements(out, array->what.Flags, array->bytes, device);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out,
                                               CUmipmappedArray mipmap, CUdevice device) {
    SG_REQUIRE(out && mipmap, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    SG_REQUIRE(handle_given(mipmap, HANDLE_MIPMAP), CUDA_ERROR_INVALID_HANDLE);
    return requirements(out, mipmap->what.Flags, mipmap->bytes, device);
}
