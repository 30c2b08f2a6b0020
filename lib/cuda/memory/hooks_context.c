/* Contexts that the program makes and destroys. Primary and green contexts are in
   hooks_primary.c. */
#include "cuda/affinity.h"
#include "cuda/device.h"
#include "cuda/memory/ending.h"
#include "cuda/memory/growth.h"
#include "cuda/memory/overhead.h"

/* The driver has answered a call that makes a context. */
static CUresult made(struct reservation *reservation, CUresult result, const CUcontext *context) {
    if (result == CUDA_SUCCESS) {
        reservation->home.owner = context_new_life();
        context_note(*context, reservation->home);
    }
    overhead_settle(reservation, result == CUDA_SUCCESS, result);
    return result;
}

/* What the driver answered, unless it may have made the context without the share's limits. */
static CUresult limited(CUresult result, CUcontext *context) {
    if (shown_leave()) {
        return result;
    }
    if (result == CUDA_SUCCESS) {
        DV_CALL(cuCtxDestroy_v2, *context);
        *context = NULL;
    }
    return CUDA_ERROR_MPS_CONNECTION_FAILED;
}

/* A function that makes `context` on `device`; after what comes first and its parameters, the
   arguments for the driver. */
#define MAKES_CONTEXT_AFTER(first, fn, parameters, ...)                                            \
    CUresult fn parameters {                                                                       \
        struct reservation reservation;                                                            \
        if (DV_INNER()) {                                                                          \
            return DV_REAL(fn)(__VA_ARGS__);                                                       \
        }                                                                                          \
        CUresult result = overhead_open(&reservation, device);                                     \
        if (result != CUDA_SUCCESS) {                                                              \
            return result;                                                                         \
        }                                                                                          \
        first;                                                                                     \
        result = shown_enter();                                                                    \
        if (result == CUDA_SUCCESS) {                                                              \
            result = limited(DV_CALL(fn, __VA_ARGS__), context);                                   \
        }                                                                                          \
        return made(&reservation, result, context);                                                \
    }
#define MAKES_CONTEXT(fn, parameters, ...) MAKES_CONTEXT_AFTER((void)0, fn, parameters, __VA_ARGS__)

MAKES_CONTEXT(cuCtxCreate, (CUcontext * context, unsigned flags, CUdevice device), context, flags,
              device)
MAKES_CONTEXT(cuCtxCreate_v2, (CUcontext * context, unsigned flags, CUdevice device), context,
              flags, device)
MAKES_CONTEXT_AFTER(struct affinity cut;
                    affinity = affinity_cut(&cut, device, affinity, affinities), cuCtxCreate_v3,
                    (CUcontext * context, CUexecAffinityParam *affinity, int affinities,
                     unsigned flags, CUdevice device),
                    context, affinity, affinities, flags, device)
MAKES_CONTEXT_AFTER(struct affinity cut; params = affinity_cut_params(&cut, device, params),
                                         cuCtxCreate_v4,
                                         (CUcontext * context, CUctxCreateParams *params,
                                          unsigned flags, CUdevice device),
                                         context, params, flags, device)
MAKES_CONTEXT(cuGLCtxCreate, (CUcontext * context, unsigned flags, CUdevice device), context, flags,
              device)
MAKES_CONTEXT(cuGLCtxCreate_v2, (CUcontext * context, unsigned flags, CUdevice device), context,
              flags, device)
MAKES_CONTEXT(cuVDPAUCtxCreate,
              (CUcontext * context, unsigned flags, CUdevice device, VdpDevice vdp,
               VdpGetProcAddress *lookup),
              context, flags, device, vdp, lookup)
MAKES_CONTEXT(cuVDPAUCtxCreate_v2,
              (CUcontext * context, unsigned flags, CUdevice device, VdpDevice vdp,
               VdpGetProcAddress *lookup),
              context, flags, device, vdp, lookup)

/* The driver has answered a call that gives up one use of a context, or its last one. */
static CUresult given_up(CUcontext context, struct entry note, bool last, CUresult result) {
    struct home home = {.device = note.device, .owner = note.owner};
    if (result == CUDA_SUCCESS && last) {
        context_ended(home);
        return result;
    }
    note.amount -= result == CUDA_SUCCESS;
    context_put_back(context, note);
    if (last) {
        TELL(context_spared, (home));
    }
    return result;
}

/* A function that gives up one use of a context, or the last one if so it is. */
#define GIVES_UP(fn, is_last)                                                                      \
    CUresult fn(CUcontext context) {                                                               \
        struct entry note;                                                                         \
        if (DV_INNER() || !context_take(context, &note)) {                                         \
            return DV_REAL(fn)(context);                                                           \
        }                                                                                          \
        bool last = is_last;                                                                       \
        if (last) {                                                                                \
            TELL(context_ending, ((struct home){.device = note.device, .owner = note.owner}));     \
        }                                                                                          \
        return given_up(context, note, last, DV_CALL(fn, context));                                \
    }

GIVES_UP(cuCtxDestroy, true)
GIVES_UP(cuCtxDestroy_v2, true)
GIVES_UP(cuCtxDetach, note.amount <= 1)

CUresult cuCtxAttach(CUcontext *context, unsigned flags) {
    struct entry note;
    CUresult result = DV_CALL(cuCtxAttach, context, flags);
    if (result == CUDA_SUCCESS && !DV_INNER() && context_take(*context, &note)) {
        note.amount++;
        context_put_back(*context, note);
    }
    return result;
}

/* Stacks, heaps and print buffers of kernels are device memory that the call names by another
 * measure. The driver may set more or less than was asked. */
CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    struct growth growth;
    struct home home;
    CUcontext context = NULL;
    enum growth_kind kind = growth_kind_of(limit);
    if (DV_INNER() || DV_CALL(cuCtxGetCurrent, &context) != CUDA_SUCCESS || context == NULL) {
        return DV_REAL(cuCtxSetLimit)(limit, value);
    }
    if (kind == GROWTH_KINDS) {
        return DV_CALL(cuCtxSetLimit, limit, value);
    }
    CUresult result = growth_begin(&growth, context, kind, GROWTH_SET, value);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = DV_CALL(cuCtxSetLimit, limit, value);
    growth_end(&growth, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS && context_current(&home) == CUDA_SUCCESS) {
        overhead_lessened(home.device);
    }
    return result;
}
