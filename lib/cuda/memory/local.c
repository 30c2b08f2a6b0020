#include "cuda/memory/local.h"

#include <string.h>

#include "cuda/fork.h"
#include "cuda/table.h"

#define CONTEXTLESS 1u /* flag: the handle is a CUkernel */
#define KNOWN 2u       /* flag: the amount is its local memory */
#define FULL UINT16_MAX

uint16_t local_counts[LOCAL_COUNTS];

static table suspects;   /* by handle; the amount is bytes of each thread */
static uint32_t deepest; /* the most of any that is part of a graph, 0 if no context has to grow */

static uint16_t *count_of(const void *handle) {
    return &local_counts[(uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15) >> 53];
}

/* A count that is full stays so: then more kernels than necessary are looked up. */
static void change_count(const void *handle, int by) {
    uint16_t *count = count_of(handle), before = __atomic_load_n(count, __ATOMIC_RELAXED);
    while (before != FULL &&
           !__atomic_compare_exchange_n(count, &before, (uint16_t)(before + by), false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

void local_met(const void *handle, bool contextless) {
    struct entry entry = {.flags = contextless ? CONTEXTLESS : 0};
    bool had;
    if (handle == NULL) {
        return;
    }
    change_count(handle, 1);
    if (!table_put(&suspects, (uint64_t)(uintptr_t)handle, entry, NULL, &had) || had) {
        change_count(handle, -1);
    }
}

/* Loads the kernel, as its launch would. Streams that are captured are not to notice. */
static bool ask(const void *handle, bool contextless, int *bytes) {
    union {
        const void *handle;
        CUfunction function;
        CUkernel kernel;
    } as = {.handle = handle};
    CUfunction function = as.function;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    DV_CALL(cuThreadExchangeStreamCaptureMode, &mode);
    bool known =
        (!contextless || DV_CALL(cuKernelGetFunction, &function, as.kernel) == CUDA_SUCCESS) &&
        DV_CALL(cuFuncGetAttribute, bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function) ==
            CUDA_SUCCESS;
    DV_CALL(cuThreadExchangeStreamCaptureMode, &mode);
    return known;
}

static void note_depth(uint32_t bytes) {
    uint32_t before = __atomic_load_n(&deepest, __ATOMIC_RELAXED);
    while (bytes > before && !__atomic_compare_exchange_n(&deepest, &before, bytes, false,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

/* What the suspect needs of a context with that much, 0 if that is no more. */
static uint32_t need_of(const void *handle, uint64_t usual) {
    uint64_t key = (uint64_t)(uintptr_t)handle;
    struct entry entry;
    int bytes = 0;
    if (!table_get(&suspects, key, &entry)) {
        return 0;
    }
    if (entry.flags & KNOWN) {
        return entry.amount;
    }
    if (!ask(handle, entry.flags & CONTEXTLESS, &bytes)) {
        return 0; /* its launch fails too */
    }
    if (bytes < 0 || (uint64_t)bytes <= usual) {
        if (table_take(&suspects, key, NULL)) {
            change_count(handle, -1);
        }
        return 0;
    }
    entry.flags |= KNOWN;
    entry.amount = (uint32_t)bytes;
    bool had;
    if (table_put(&suspects, key, entry, NULL, &had) && !had) {
        change_count(handle, 1);
    }
    return (uint32_t)bytes;
}

/* The context in which a stream's work runs. */
static CUcontext context_of(CUstream stream) {
    CUcontext context = NULL;
    bool named = stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    if (named || DV_CALL(cuStreamGetCtx, stream, &context) != CUDA_SUCCESS) {
        context = NULL;
        DV_CALL(cuCtxGetCurrent, &context);
    }
    return context;
}

static uint64_t usual_of(CUcontext context) {
    struct home home;
    bool known = context != NULL && context_find(context, &home) == CUDA_SUCCESS;
    return known ? growth_usual(context, home, GROWTH_STACK) : 0;
}

static CUresult grow(struct growth *growth, CUcontext context, uint32_t need) {
    return need != 0 && context != NULL
               ? growth_begin(growth, context, GROWTH_STACK, GROWTH_KERNEL, need)
               : CUDA_SUCCESS;
}

CUresult local_launch(struct growth *growth, const void *handle, CUstream stream) {
    CUcontext context = context_of(stream);
    CUstreamCaptureStatus status;
    growth->row = NULL;
    uint32_t need = need_of(handle, usual_of(context));
    if (need != 0 && DV_CALL(cuStreamIsCapturing, stream, &status) == CUDA_SUCCESS &&
        status != CU_STREAM_CAPTURE_STATUS_NONE) {
        note_depth(need);
    }
    return grow(growth, context, need);
}

void local_in_graph(const void *handle) {
    if (local_suspected(handle)) {
        note_depth(need_of(handle, usual_of(context_of(NULL))));
    }
}

CUresult local_graph(struct growth *growth, CUstream stream) {
    uint32_t need = __atomic_load_n(&deepest, __ATOMIC_RELAXED);
    growth->row = NULL;
    return need != 0 ? grow(growth, context_of(stream), need) : CUDA_SUCCESS;
}

static void local_forked(void) {
    table_forget(&suspects);
    memset(local_counts, 0, sizeof local_counts);
    deepest = 0;
}
ON(forked, local_forked);
