/*
 * Memory of a context that grows by a call which names no bytes of memory: the stacks of all threads
 * that the GPU can hold at once, and what the device runtime keeps for kernels. Each growth is
 * reserved before the driver is asked, and charged until the context ends or the driver takes less.
 *
 *     result = growth_begin(&growth, context, GROWTH_STACK, bytes);
 *     if (result != CUDA_SUCCESS)
 *         return result;
 *     result = DV_CALL(...);
 *     growth_end(&growth, result == CUDA_SUCCESS);
 *
 * What a context has from its creation on is part of its overhead.
 */
#ifndef DIVVY_CUDA_MEMORY_GROWTH_H
#define DIVVY_CUDA_MEMORY_GROWTH_H

#include "cuda/memory/reservation.h"

enum growth_kind {
    GROWTH_STACK,   /* CU_LIMIT_STACK_SIZE, and kernels that need more */
    GROWTH_PRINTS,  /* CU_LIMIT_PRINTF_FIFO_SIZE, from the first code on that prints */
    GROWTH_HEAP,    /* CU_LIMIT_MALLOC_HEAP_SIZE, from the first code on that allocates */
    GROWTH_DEPTH,   /* CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH */
    GROWTH_PENDING, /* CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT */
    GROWTH_KINDS,
};

/* Why it grows. */
enum growth_reason {
    GROWTH_SET,    /* the program sets the limit */
    GROWTH_KERNEL, /* a kernel needs so much stack, whatever the limit */
    GROWTH_CODE,   /* code is loaded that needs it, at the limit as it is */
};

struct growth {
    CUcontext context;
    struct home home;
    enum growth_kind kind;
    enum growth_reason reason;
    uint64_t value;
    struct row *row; /* NULL: nothing grows */
    uint32_t begun;  /* of the row, as this growth left it */
    bool settled;    /* the charge had room for it already */
};

/* value is in the limit's own unit; of no account for GROWTH_CODE. CUDA_ERROR_OUT_OF_MEMORY, with
 * nothing left to end, if the share's limit does not allow what it takes. */
DV_HIDDEN CUresult growth_begin(struct growth *growth, CUcontext context, enum growth_kind kind,
                                enum growth_reason reason, uint64_t value);
DV_HIDDEN void growth_end(struct growth *growth, bool done);

/* The kind of a limit; GROWTH_KINDS if it takes no device memory. */
DV_HIDDEN enum growth_kind growth_kind_of(CUlimit limit);

/* The value of a limit with which contexts begin on the home's device, as the given context had it
 * when the first one was looked at. */
DV_HIDDEN uint64_t growth_usual(CUcontext context, struct home home, enum growth_kind kind);

/* Whether the context's limit was raised. */
DV_HIDDEN bool growth_raised(CUcontext context, struct home home, enum growth_kind kind);

#endif
