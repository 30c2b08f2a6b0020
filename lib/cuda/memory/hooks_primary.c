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
#include "libc/cancel.h"

/* Owner of the primary context's memory, 0 while there is none. */
static uint32_t primary[DV_PAGE_DEVICES];

/* Its uses that we have seen begin and not end. There may be more. */
static uint32_t uses[DV_PAGE_DEVICES];

/* Calls that begin or end a use take turns. Otherwise nobody could tell whether a context that is
 * there after a release is the old one or a new one under the same handle, and so whose memory and
 * events are gone. The driver does not answer two such calls at once either. This is the only lock
 * that is held during driver calls. The driver's own calls do not come here. */
static lock turns[DV_PAGE_DEVICES];

/* Whether the thread that has the turn could be cancelled before. While it has it, a request waits:
 * what it calls may be a cancellation point, and nobody would give the turn back. */
static int cancellable[DV_PAGE_DEVICES];

/* By handle: the GPU of a green context. */
static table greens;

static void take_turn(unsigned device) {
    int before = cancel_hold();
    lock_take(&turns[device]);
    cancellable[device] = before;
}

static void give_turn(unsigned device) {
    int before = cancellable[device];
    lock_give(&turns[device]);
    cancel_allow(&before);
}

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

/* A driver call that may end the primary context, or all its memory. */
struct release {
    int number; /* of the device, -1 for one outside the share */
    bool reset;
    bool ends; /* it was told that the context may end */
    struct home home;
};

static struct release before_release(CUdevice device, bool reset) {
    struct release release = {.number = device_number(device), .reset = reset};
    if (release.number < 0) {
        return release;
    }
    unsigned number = (unsigned)release.number;
    take_turn(number);
    release.home = (struct home){.device = number, .owner = owner_of(number)};
    release.ends = release.home.owner != 0 && (reset || uses[number] <= 1);
    if (release.ends) {
        TELL(context_ending, (release.home));
    }
    return release;
}

/* The driver has carried the call out. */
static void released(const struct release *release, bool alive) {
    struct home home = release->home;
    uint32_t *left = &uses[home.device];
    *left = release->reset || *left == 0 ? 0 : *left - 1;
    if (home.owner == 0) {
        return;
    }
    if (!alive) {
        __atomic_store_n(&primary[home.device], 0, __ATOMIC_RELEASE);
        context_forget_owner(home.owner);
        context_ended(home);
    } else if (release->reset) {
        context_memory_ended(home);
    } else if (release->ends) {
        TELL(context_spared, (home));
    }
}

static CUresult after_release(const struct release *release, CUdevice device, CUresult result) {
    if (release->number < 0) {
        return result;
    }
    if (result == CUDA_SUCCESS) {
        released(release, is_alive(device));
    } else if (release->ends) {
        TELL(context_spared, (release->home));
    }
    give_turn((unsigned)release->number);
    return result;
}

/* Before a driver call that uses the primary context. Reserves only if there is none yet. */
static CUresult before_use(struct reservation *reservation, CUdevice device, bool *reserved) {
    CUresult attached = attach_share();
    int number = attached == CUDA_SUCCESS ? device_number(device) : -1;
    if (number < 0) {
        return attached != CUDA_SUCCESS ? attached : reservation_why_unknown();
    }
    take_turn((unsigned)number);
    *reserved = owner_of((unsigned)number) == 0;
    reservation->home = (struct home){.device = (unsigned)number};
    CUresult result = *reserved ? overhead_open(reservation, device) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        give_turn((unsigned)number);
    }
    return result;
}

static void after_use(struct reservation *reservation, bool reserved, CUresult result,
                      CUcontext context) {
    unsigned device = reservation->home.device;
    struct home known;
    bool fresh = false;
    if (result == CUDA_SUCCESS) {
        uses[device]++;
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
        overhead_settle(reservation, fresh, result);
    } else if (fresh) {
        overhead_appeared(device);
    }
    give_turn(device);
}

/* What the driver answered, unless it may have made the context without the share's limits. */
static CUresult limited(CUresult result, CUdevice device) {
    if (shown_leave()) {
        return result;
    }
    if (result == CUDA_SUCCESS) {
        DV_CALL(cuDevicePrimaryCtxRelease_v2, device);
    }
    return CUDA_ERROR_MPS_CONNECTION_FAILED;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    struct reservation reservation = {0};
    bool reserved = false;
    if (DV_INNER()) {
        return DV_REAL(cuDevicePrimaryCtxRetain)(context, device);
    }
    CUresult result = before_use(&reservation, device, &reserved);
    if (result == CUDA_SUCCESS) {
        result = shown_enter();
        if (result == CUDA_SUCCESS) {
            result = limited(DV_CALL(cuDevicePrimaryCtxRetain, context, device), device);
        }
        after_use(&reservation, reserved, result, result == CUDA_SUCCESS ? *context : NULL);
    }
    return result;
}

/* Notes the context that stands for a green one, too: the driver names it for streams of it. */
static void note_green(CUgreenCtx green, unsigned device) {
    struct entry note = entry_make(0, 0, device);
    CUcontext context;
    table_put(&greens, (uint64_t)(uintptr_t)green, note, NULL, NULL);
    if (DV_CALL(cuCtxFromGreenCtx, &context, green) == CUDA_SUCCESS) {
        context_note_green(context, (struct home){.device = device, .owner = owner_of(device)});
    }
}

static CUresult limited_green(CUresult result, CUgreenCtx *green) {
    if (shown_leave()) {
        return result;
    }
    if (result == CUDA_SUCCESS) {
        DV_CALL(cuGreenCtxDestroy, *green);
        *green = NULL;
    }
    return CUDA_ERROR_MPS_CONNECTION_FAILED;
}

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device,
                          unsigned flags) {
    struct reservation reservation = {0};
    bool reserved = false;
    if (DV_INNER()) {
        return DV_REAL(cuGreenCtxCreate)(green, resources, device, flags);
    }
    CUresult result = before_use(&reservation, device, &reserved);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = shown_enter();
    if (result == CUDA_SUCCESS) {
        result = limited_green(DV_CALL(cuGreenCtxCreate, green, resources, device, flags), green);
    }
    after_use(&reservation, reserved, result, NULL);
    if (result == CUDA_SUCCESS) {
        note_green(*green, reservation.home.device);
        overhead_look(reservation.home.device);
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
        context_note_green(*context, home);
    }
    return result;
}

/* The streams of a green context stay handles when it is destroyed. */
CUresult cuGreenCtxDestroy(CUgreenCtx green) {
    struct entry note;
    CUdevice device;
    if (DV_INNER() || green == NULL || !table_take(&greens, (uint64_t)(uintptr_t)green, &note) ||
        !device_of_number(note.device, &device)) {
        return DV_REAL(cuGreenCtxDestroy)(green);
    }
    CUcontext context = NULL;
    struct entry named;
    bool known = DV_CALL(cuCtxFromGreenCtx, &context, green) == CUDA_SUCCESS;
    if (known) {
        TELL(green_ending, (context));
        known = context_take(context, &named);
    }
    struct release release = before_release(device, false);
    CUresult result = after_release(&release, device, DV_CALL(cuGreenCtxDestroy, green));
    if (result != CUDA_SUCCESS) {
        table_put(&greens, (uint64_t)(uintptr_t)green, note, NULL, NULL);
        if (known) {
            context_put_back(context, named);
        }
    } else {
        overhead_lessened(note.device);
    }
    return result;
}

/* A function that releases or resets the primary context of `device`. */
#define RELEASES_PRIMARY(fn, reset)                                                                \
    CUresult fn(CUdevice device) {                                                                 \
        if (DV_INNER()) {                                                                          \
            return DV_REAL(fn)(device);                                                            \
        }                                                                                          \
        struct release release = before_release(device, reset);                                    \
        return after_release(&release, device, DV_CALL(fn, device));                               \
    }

RELEASES_PRIMARY(cuDevicePrimaryCtxRelease, false)
RELEASES_PRIMARY(cuDevicePrimaryCtxRelease_v2, false)
RELEASES_PRIMARY(cuDevicePrimaryCtxReset, true)
RELEASES_PRIMARY(cuDevicePrimaryCtxReset_v2, true)

static void primary_forked(void) {
    table_forget(&greens);
    for (unsigned i = 0; i < DV_PAGE_DEVICES; i++) {
        primary[i] = uses[i] = 0;
        turns[i] = (lock){0};
    }
}
ON(forked, primary_forked);
