#include "cuda/context.h"

#include <string.h>

#include "cuda/attach.h"
#include "cuda/device.h"
#include "cuda/fork.h"
#include "cuda/table.h"
#include "share/share.h"

/* By handle: owner, device; amount is the usage count of cuCtxAttach and cuCtxDetach. */
static table contexts;
#define GREEN 1u        /* flag of a note */
static bool greens;     /* there was such a note */
static uint32_t lives;  /* the last number given to a life of a context */
static uint32_t change; /* raised when a handle may name a different context than before */

/* The answer to the calling thread's last question, because programs seldom change their
   context. */
static _Thread_local struct {
    CUcontext context;
    uint32_t change;
    struct home home;
} last __attribute__((tls_model("initial-exec")));

uint32_t context_new_life(void) {
    return __atomic_add_fetch(&lives, 1, __ATOMIC_RELAXED);
}

void context_note(CUcontext context, struct home home) {
    struct entry note = entry_make(1, home.owner, home.device);
    table_put(&contexts, (uint64_t)(uintptr_t)context, note, NULL, NULL);
    __atomic_add_fetch(&change, 1, __ATOMIC_RELEASE);
}

void context_note_green(CUcontext context, struct home home) {
    struct entry note = entry_make(1, home.owner, home.device);
    note.flags = GREEN;
    table_put(&contexts, (uint64_t)(uintptr_t)context, note, NULL, NULL);
    __atomic_store_n(&greens, true, __ATOMIC_RELEASE);
    __atomic_add_fetch(&change, 1, __ATOMIC_RELEASE);
}

bool context_is_green(CUcontext context) {
    struct entry note;
    return __atomic_load_n(&greens, __ATOMIC_ACQUIRE) && context != NULL &&
           table_get(&contexts, (uint64_t)(uintptr_t)context, &note) && note.flags == GREEN;
}

CUcontext context_current_green(void) {
    CUcontext context = NULL;
    bool is = __atomic_load_n(&greens, __ATOMIC_ACQUIRE) &&
              DV_CALL(cuCtxGetCurrent, &context) == CUDA_SUCCESS && context_is_green(context);
    return is ? context : NULL;
}

bool context_take(CUcontext context, struct entry *note) {
    bool known = context != NULL && table_take(&contexts, (uint64_t)(uintptr_t)context, note);
    __atomic_add_fetch(&change, 1, __ATOMIC_RELEASE);
    return known;
}

void context_put_back(CUcontext context, struct entry note) {
    table_put(&contexts, (uint64_t)(uintptr_t)context, note, NULL, NULL);
}

bool context_known(CUcontext context, struct home *home) {
    struct entry note;
    if (!table_get(&contexts, (uint64_t)(uintptr_t)context, &note)) {
        return false;
    }
    *home = (struct home){.device = note.device, .owner = note.owner};
    return true;
}

static bool has_owner(uint64_t key, struct entry *note, void *owner) {
    (void)key;
    return note->owner == *(const uint32_t *)owner;
}

void context_forget_owner(uint32_t owner) {
    table_sweep(&contexts, has_owner, &owner);
    __atomic_add_fetch(&change, 1, __ATOMIC_RELEASE);
}

/* The device of a context that we have not seen being made. */
static CUresult ask_device(CUcontext context, CUdevice *device) {
    CUcontext popped;
    CUresult result = DV_CALL(cuCtxPushCurrent_v2, context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = DV_CALL(cuCtxGetDevice, device);
    DV_CALL(cuCtxPopCurrent_v2, &popped);
    return result;
}

/* Notes a context that was made without us, on this device. */
static CUresult meet(CUcontext context, CUdevice device, struct home *home) {
    int number = device_number(device);
    if (number < 0) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    struct entry old, note = entry_make(1, context_new_life(), (unsigned)number);
    bool had;
    if (table_put(&contexts, (uint64_t)(uintptr_t)context, note, &old, &had) && had) {
        note = old; /* another thread noted it at the same time */
        context_put_back(context, old);
    } else {
        TELL(context_met, ((unsigned)number));
    }
    *home = (struct home){.device = note.device, .owner = note.owner};
    return CUDA_SUCCESS;
}

/* The calling thread's last answer, if it is about this context and still right. */
static bool recall(CUcontext context, uint32_t now, struct home *home) {
    bool same = last.context == context && last.change == now;
    if (same) {
        *home = last.home;
    }
    return same;
}

static CUresult remember(CUcontext context, uint32_t now, CUresult result,
                         const struct home *home) {
    if (result == CUDA_SUCCESS) {
        last.context = context;
        last.change = now;
        last.home = *home;
    }
    return result;
}

CUresult context_find(CUcontext context, struct home *home) {
    CUdevice device;
    uint32_t now = __atomic_load_n(&change, __ATOMIC_ACQUIRE);
    if (recall(context, now, home)) {
        return CUDA_SUCCESS;
    }
    CUresult result = CUDA_SUCCESS;
    if (!context_known(context, home)) {
        result = ask_device(context, &device);
        result = result == CUDA_SUCCESS ? meet(context, device, home) : result;
    }
    return remember(context, now, result, home);
}

/* The current context may be one that another thread has destroyed, so the driver is not given it
 * but asked about the thread. */
CUresult context_current(struct home *home) {
    CUcontext context = NULL;
    CUdevice device;
    CUresult result = DV_CALL(cuCtxGetCurrent, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (context == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    uint32_t now = __atomic_load_n(&change, __ATOMIC_ACQUIRE);
    if (recall(context, now, home)) {
        return CUDA_SUCCESS;
    }
    if (!context_known(context, home)) {
        result = DV_CALL(cuCtxGetDevice, &device);
        result = result == CUDA_SUCCESS ? meet(context, device, home) : result;
    }
    return remember(context, now, result, home);
}

static void context_forked(void) {
    table_forget(&contexts);
    __atomic_add_fetch(&change, 1, __ATOMIC_RELEASE);
}
ON(forked, context_forked);
