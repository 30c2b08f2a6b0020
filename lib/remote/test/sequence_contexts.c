/* Calls that make contexts current. */
#include "remote/test/sequence.h"

static CUresult create(void) {
    unsigned place = (unsigned)draw(CONTEXTS), flags = draw(8) ? (unsigned)draw(9) : 0x100u;
    CUdevice device = draw_device();
    CUcontext made = (CUcontext)UINT64_C(0x7777), *to = draw(10) ? &made : NULL;
    CUexecAffinityParam affinity = {.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT, .param.smCount.val = 4};
    CUctxCreateParams params = {.execAffinityParams = &affinity, .numExecAffinityParams = 1};
    CUresult result;

    switch (draw(5)) {
    case 0:
        result = CALL(cuCtxCreate, to, flags, device);
        break;
    case 1:
        result =
            CALL(cuCtxCreate_v3, to, draw(2) ? &affinity : NULL, (int)draw(3) - 1, flags, device);
        break;
    case 2:
        result = CALL(cuCtxCreate_v4, to, draw(2) ? &params : NULL, flags, device);
        break;
    default:
        result = CALL(cuCtxCreate_v2, to, flags, device);
    }
    if (result == CUDA_SUCCESS) {
        /* What had this place is ended by nobody any more: it stays current where it is. */
        CALL(cuCtxDestroy_v2, world.contexts[place]);
        world.contexts[place] = made;
    } else {
        see((uint64_t)made);
    }
    return result;
}

static CUresult destroy(void) {
    CUcontext ctx = draw_context();

    return draw(2) ? CALL(cuCtxDestroy, ctx) : CALL(cuCtxDestroy_v2, ctx);
}

static CUresult attach(void) {
    CUcontext ctx = NULL, *to = draw(8) ? &ctx : NULL;
    CUresult result = CALL(cuCtxAttach, to, draw(8) == 0);

    see_context(ctx);
    return result;
}

static CUresult detach(void) {
    CUcontext ctx = draw_context();

    if (draw(2)) {
        CALL(cuCtxGetCurrent, &ctx);
    }
    /* Nothing is attached to NULL; the simulated driver looks into what it is given. */
    return CALL(cuCtxDetach, ctx);
}

static CUresult push(void) {
    CUcontext ctx = draw_context();

    return draw(2) ? CALL(cuCtxPushCurrent, ctx) : CALL(cuCtxPushCurrent_v2, ctx);
}

static CUresult pop(void) {
    CUcontext ctx = NULL, *to = draw(4) ? &ctx : NULL;
    CUresult result = draw(2) ? CALL(cuCtxPopCurrent, to) : CALL(cuCtxPopCurrent_v2, to);

    see_context(ctx);
    return result;
}

static CUresult set(void) {
    return CALL(cuCtxSetCurrent, draw(6) ? draw_context() : NULL);
}

static CUresult get(void) {
    CUcontext ctx = NULL;
    CUdevice device = 7;
    CUresult result;

    if (draw(2)) {
        result = CALL(cuCtxGetCurrent, draw(8) ? &ctx : NULL);
        see_context(ctx);
    } else {
        result = CALL(cuCtxGetDevice, draw(8) ? &device : NULL);
        see((uint64_t)device);
    }
    return result;
}

/* Calls that are generated, and need a context. */
static CUresult use(void) {
    unsigned value = 3;
    int least = 5, greatest = 6;
    CUresult result;

    switch (draw(4)) {
    case 0:
        result = CALL(cuCtxGetFlags, &value);
        break;
    case 1:
        result = CALL(cuCtxGetApiVersion, draw(2) ? draw_context() : NULL, &value);
        break;
    case 2:
        result =
            CALL(cuCtxGetStreamPriorityRange, draw(2) ? &least : NULL, draw(2) ? &greatest : NULL);
        break;
    default:
        result = CALL(cuCtxSynchronize);
    }
    see(value);
    see((uint64_t)least);
    see((uint64_t)greatest);
    return result;
}

static CUresult retain(void) {
    CUdevice device = draw_device();
    CUcontext ctx = NULL;
    CUresult result = CALL(cuDevicePrimaryCtxRetain, draw(8) ? &ctx : NULL, device);

    if (result == CUDA_SUCCESS) {
        world.contexts[CONTEXTS + (unsigned)device] = ctx;
    }
    return result;
}

static CUresult release(void) {
    CUdevice device = draw_device();
    unsigned flags = 0;
    int active = 0;
    CUresult result;

    switch (draw(6)) {
    case 0:
        result = CALL(cuDevicePrimaryCtxReset, device);
        break;
    case 1:
        result = CALL(cuDevicePrimaryCtxReset_v2, device);
        break;
    case 2:
        result = CALL(cuDevicePrimaryCtxGetState, device, &flags, &active);
        break;
    case 3:
        result = CALL(cuDevicePrimaryCtxRelease, device);
        break;
    default:
        result = CALL(cuDevicePrimaryCtxRelease_v2, device);
    }
    see((uint64_t)active);
    return result;
}

operation *const context_operations[CONTEXT_OPERATIONS] = {
    create, create, destroy, attach, detach, push,   push,   pop,     set,     set,
    get,    get,    use,     use,    use,    retain, retain, release, release,
};
