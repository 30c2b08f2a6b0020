/*
 * A driver for tests of how calls find their way: it has a few functions, keeps true figures, and
 * does on request what real drivers do rarely. What memory really does is tested with simgpu.
 */
#ifndef DIVVY_CUDA_TEST_DRIVER_H
#define DIVVY_CUDA_TEST_DRIVER_H

#include "abi/cuda/types.h"

#define FAKE_GPUS 3
#define FAKE_MPS 4 /* pipe directory, percentage of threads, memory limit, one for each context */
#define FAKE_SMS 30
#define FAKE_TOTAL ((size_t)16 << 30)

/* Found in the driver by the name fake_driver. UUID of GPU i: sixteen times i + 1. */
struct fake_driver {
    /* What the test asks for. */
    CUresult alloc_result;        /* of every allocation, unless 0 */
    CUresult free_result;         /* of every free, unless 0 */
    int ignore_visible;           /* show all GPUs, whatever CUDA_VISIBLE_DEVICES says */
    void (*during_init)(void);    /* called inside cuInit */
    void (*during_context)(void); /* called inside what makes a context */
    void (*during_alloc)(void);   /* called inside cuMemAlloc_v2 */
    void (*during_pitch)(void);   /* called inside cuMemAllocPitch_v2, before it allocates */
    void (*during_sync)(void);    /* called inside cuStreamSynchronize */

    /* What happened. */
    char visible[2048];      /* CUDA_VISIBLE_DEVICES in cuInit, "(none)" if not set */
    char mps[FAKE_MPS][192]; /* those of MPS in the last cuInit or making of a context, likewise */
    unsigned affinity;       /* multiprocessors asked for in the last cuCtxCreate_v3 or _v4 */
    unsigned inits;          /* calls of cuInit */
    int contexts;            /* that were made and not ended, uses of primary ones included */
    unsigned allocs, frees;  /* calls of cuMemAlloc_v2 and cuMemFree_v2 */
    size_t blocks;           /* 2 MiB blocks that allocations touch */
};

#endif
