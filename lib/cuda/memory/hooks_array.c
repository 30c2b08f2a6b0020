/*
 * Arrays and mipmapped arrays. A level or plane of an array has a handle of its own but no memory,
 * so it is not noted here.
 */
#include "cuda/fork.h"
#include "cuda/memory/array.h"
#include "cuda/memory/vmm.h"
#include "cuda/table.h"
#include "share/share.h"

static table arrays; /* by handle, plain and mipmapped: amount charged, owner, device */

/* Notes what the driver gave and settles the reservation. False if there is no memory for the
   note. */
static bool keep(struct reservation *reservation, const void *handle) {
    struct entry old, note = entry_of_bytes(reservation->bytes, reservation->home.owner,
                                            reservation->home.device);
    bool had;
    bool done = reservation->bytes <= GRAINS_MAX_BYTES &&
                table_put(&arrays, (uint64_t)(uintptr_t)handle, note, &old, &had);
    reservation_settle(reservation, done ? reservation->bytes : 0);
    if (done && had) { /* the old array ended with a context whose end we did not see */
        reservation_release(old.device, entry_bytes(old));
    }
    return done;
}

/* The driver has answered a call that makes an array. */
static CUresult made(struct reservation *reservation, CUresult result, CUarray got,
                     CUarray *array) {
    if (result != CUDA_SUCCESS) {
        reservation_fail(reservation, result);
        return result;
    }
    if (!keep(reservation, got)) {
        DV_CALL(cuArrayDestroy, got);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *array = got;
    return CUDA_SUCCESS;
}

/* A function that makes `array` as `what`, of which `as3d` is the description in three
   dimensions. */
#define MAKES_ARRAY(fn, type, as3d)                                                                \
    CUresult fn(CUarray *array, const type *what) {                                                \
        struct reservation reservation;                                                            \
        CUarray got = NULL;                                                                        \
        if (DV_INNER() || array == NULL || what == NULL) {                                         \
            return DV_REAL(fn)(array, what);                                                       \
        }                                                                                          \
        CUDA_ARRAY3D_DESCRIPTOR full = as3d;                                                       \
        CUresult result = reservation_open_kept(&reservation, array_bytes(&full, 1));              \
        if (result == CUDA_SUCCESS) {                                                              \
            result = DV_CALL(fn, &got, what);                                                      \
            result = made(&reservation, result, got, array);                                       \
        }                                                                                          \
        return result;                                                                             \
    }

#define PLANE(what)                                                                                \
    {.Width = (what)->Width,                                                                       \
     .Height = (what)->Height,                                                                     \
     .Format = (what)->Format,                                                                     \
     .NumChannels = (what)->NumChannels}
#define VOLUME(what)                                                                               \
    {.Width = (what)->Width,                                                                       \
     .Height = (what)->Height,                                                                     \
     .Depth = (what)->Depth,                                                                       \
     .Format = (what)->Format,                                                                     \
     .NumChannels = (what)->NumChannels,                                                           \
     .Flags = (what)->Flags}

MAKES_ARRAY(cuArrayCreate, CUDA_ARRAY_DESCRIPTOR_v1, PLANE(what))
MAKES_ARRAY(cuArrayCreate_v2, CUDA_ARRAY_DESCRIPTOR, PLANE(what))
MAKES_ARRAY(cuArray3DCreate, CUDA_ARRAY3D_DESCRIPTOR_v1, VOLUME(what))
MAKES_ARRAY(cuArray3DCreate_v2, CUDA_ARRAY3D_DESCRIPTOR, VOLUME(what))

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *what,
                                unsigned levels) {
    struct reservation reservation;
    CUmipmappedArray got = NULL;
    if (DV_INNER() || array == NULL || what == NULL) {
        return DV_REAL(cuMipmappedArrayCreate)(array, what, levels);
    }
    CUresult result = reservation_open_kept(&reservation, array_bytes(what, levels));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = DV_CALL(cuMipmappedArrayCreate, &got, what, levels);
    if (result != CUDA_SUCCESS) {
        reservation_fail(&reservation, result);
        return result;
    }
    if (!keep(&reservation, got)) {
        DV_CALL(cuMipmappedArrayDestroy, got);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *array = got;
    return CUDA_SUCCESS;
}

/* A function that destroys what was made above; memory mapped into a sparse one is free of it
   then. */
#define DESTROYS_ARRAY(fn, type)                                                                   \
    CUresult fn(type array) {                                                                      \
        struct entry note;                                                                         \
        if (DV_INNER() || array == NULL ||                                                         \
            !table_take(&arrays, (uint64_t)(uintptr_t)array, &note)) {                             \
            return DV_REAL(fn)(array);                                                             \
        }                                                                                          \
        CUresult result = DV_CALL(fn, array);                                                      \
        if (result != CUDA_SUCCESS) {                                                              \
            table_put(&arrays, (uint64_t)(uintptr_t)array, note, NULL, NULL);                      \
            return result;                                                                         \
        }                                                                                          \
        reservation_release(note.device, entry_bytes(note));                                       \
        vmm_array_destroyed(array);                                                                \
        return result;                                                                             \
    }

DESTROYS_ARRAY(cuArrayDestroy, CUarray)
DESTROYS_ARRAY(cuMipmappedArrayDestroy, CUmipmappedArray)

/* What one context leaves behind on each GPU. */
struct remains {
    uint32_t owner;
    uint64_t bytes[DV_PAGE_DEVICES];
};

static bool ends_with_context(uint64_t handle, struct entry *note, void *arg) {
    struct remains *remains = arg;
    (void)handle;
    if (note->owner != remains->owner) {
        return false;
    }
    remains->bytes[note->device] += entry_bytes(*note);
    return true;
}

void arrays_context_ended(uint32_t owner) {
    struct remains remains = {.owner = owner};
    table_sweep(&arrays, ends_with_context, &remains);
    for (unsigned device = 0; device < DV_PAGE_DEVICES; device++) {
        reservation_release(device, remains.bytes[device]);
    }
}

static void arrays_forked(void) {
    table_forget(&arrays);
}
ON(forked, arrays_forked);
