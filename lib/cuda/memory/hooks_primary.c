/*
 * The primary context of each GPU, which the CUDA runtime uses, and green contexts, which use its
 * memory.
 *
 * The driver counts the uses of a primary context. Here we remember that there is one, so that only
 * its first use reserves and only the end of its last use gives back. After a release we ask the
 * driver whether it still exists, because other libraries in the process use and release it too.
 */
#include "cuda/attach.h"
#include "cuda/device.h"
#include "cuda/fork.h"
#include "cuda/memory/ending.h"
#include "cuda/memory/overhead.h"
#include "cuda/memory/primary.h"

/* Owner of the primary context's memory, 0 while there is none. */
static uint32_t primary[DV_PAGE_DEVICES];

/* By handle: the GPU of a green context. */
static table greens;

static uint32_t owner_of(unsigned device) {
    return __atomic_load_n(&primary[device], __ATOMIC_ACQUIRE);
}

/* Notes that there is a primary context. True for the one caller who notes it first. */
static bool begin_life(unsigned device) {
    uint32_t none = 0;
    return __atomic_compare_exchange_n(&primary[device], &none, context_new_life(), false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static bool is_alive(CUdevice device) {
    unsigned flags;
    int active = 0;
    return DV_CALL(cuDevicePrimaryCtxGetState, device, &flags, &active) == CUDA_SUCCESS && active;
}

/* After a driver call that may have ended the primary context, or all its memory. */
static void after_release(CUdevice device, bool reset) {
    int number = device_number(device);
    if (number < 0) {
        return;
    }
    bool alive = is_alive(device);
    uint32_t owner = owner_of((unsigned)number);
    struct home home = {.device = (unsigned)number, .owner = owner};
    if (owner == 0 || (alive && !reset)) {
        return;
    }
    if (alive) {
        context_memory_ended(home);
        return;
    }
    if (__atomic_compare_exchange_n(&primary[number], &owner, 0, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        context_forget_owner(home.owner);
        context_ended(home);
    }
}

/* Before a driver call that uses the primary context. Reserves only if there is none yet. */
static CUresult before_use(struct reservation *reservation, CUdevice device, bool *reserved) {
    int number = attach_share() == CUDA_SUCCESS ? device_number(device) : -1;
    *reserved = number < 0 || owner_of((unsigned)number) == 0;
    reservation->home = (struct home){.device = (unsigned)number};
    return *reserved ? overhead_open(reservation, device) : CUDA_SUCCESS;
}

static void after_use(struct reservation *reservation, bool reserved, CUresult result,
                      CUcontext context) {
    unsigned device = reservation->home.device;
    struct home known;
    bool fresh = false;
    if (result == CUDA_SUCCESS) {
        /* The context was met before, without us seeing it made: its overhead is charged, its owner
         * stays. */
        if (context != NULL && context_known(context, &known)) {
            uint32_t none = 0;
            __atomic_compare_exchange_n(&primary[device], &none, known.owner, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
        } else {
            fresh = begin_life(device);
        }
        if (context != NULL) {
            context_note(context, (struct home){.device = device, .owner = owner_of(device)});
        }
    }
    if (reserved) {
        overhead_settle(reservation, fresh);
    } else if (fresh) {
        overhead_appeared(device);
    }
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    struct reservation reservation;
    bool reserved;
    if (DV_INNER()) {
        return DV_REAL(cuDevicePrimaryCtxRetain)(context, device);
    }
    CUresult result = before_use(&reservation, device, &reserved);
    if (result == CUDA_SUCCESS) {
        result = DV_CALL(cuDevicePrimaryCtxRetain, context, device);
        after_use(&reservation, reserved, result, result == CUDA_SUCCESS ? *context : NULL);
    }
    return result;
}

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device,
                          unsigned flags) {
    struct reservation reservation;
    bool reserved;
    if (DV_INNER()) {
        return DV_REAL(cuGreenCtxCreate)(green, resources, device, flags);
    }
    CUresult result = before_use(&reservation, device, &reserved);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = DV_CALL(cuGreenCtxCreate, green, resources, device, flags);
    after_use(&reservation, reserved, result, NULL);
    if (result == CUDA_SUCCESS) {
        struct entry note = entry_make(0, 0, reservation.home.device);
        table_put(&greens, (uint64_t)(uintptr_t)*green, note, NULL, NULL);
        overhead_measure(reservation.home.device);
    }
    return result;
}

bool green_known(CUgreenCtx green, struct home *home) {
    struct entry note;
    if (!table_get(&greens, (uint64_t)(uintptr_t)green, &note)) {
        return false;
    }
    *home = (struct home){.device = note.device, .owner = owner_of(note.device)};
    return true;
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green) {
    struct home home;
    CUresult result = DV_CALL(cuCtxFromGreenCtx, context, green);
    if (result == CUDA_SUCCESS && !DV_INNER() && green_known(green, &home)) {
        context_note(*context, home);
    }
    return result;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green) {
    struct entry note;
    CUdevice device;
    if (DV_INNER() || green == NULL || !table_take(&greens, (uint64_t)(uintptr_t)green, &note)) {
        return DV_REAL(cuGreenCtxDestroy)(green);
    }
    CUresult result = DV_CALL(cuGreenCtxDestroy, green);
    if (result != CUDA_SUCCESS) {
        table_put(&greens, (uint64_t)(uintptr_t)green, note, NULL, NULL);
    } else if (device_of_number(note.device, &device)) {
        after_release(device, false);
        overhead_measure(note.device);
    }
    return result;
}

/* A function that releases or resets the primary context of `device`. */
#define RELEASES_PRIMARY(fn, reset)                                                                \
    CUresult fn(CUdevice device) {                                                                 \
        if (DV_INNER()) {                                                                          \
            return DV_REAL(fn)(device);                                                            \
        }                                                                                          \
        CUresult result = DV_CALL(fn, device);                                                     \
        if (result == CUDA_SUCCESS) {                                                              \
            after_release(device, reset);                                                          \
        }                                                                                          \
        return result;                                                                             \
    }

RELEASES_PRIMARY(cuDevicePrimaryCtxRelease, false)
RELEASES_PRIMARY(cuDevicePrimaryCtxRelease_v2, false)
RELEASES_PRIMARY(cuDevicePrimaryCtxReset, true)
RELEASES_PRIMARY(cuDevicePrimaryCtxReset_v2, true)

static void primary_forked(void) {
    table_forget(&greens);
    for (unsigned i = 0; i < DV_PAGE_DEVICES; i++) {
        primary[i] = 0;
    }
}
ON(forked, primary_forked);
