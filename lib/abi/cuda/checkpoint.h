/* Checkpoints of processes (CUDA 12.8). What is reserved must be zero. Included by types.h. */
#ifndef DIVVY_ABI_CUDA_CHECKPOINT_H
#define DIVVY_ABI_CUDA_CHECKPOINT_H

typedef enum CUprocessState {
    CU_PROCESS_STATE_RUNNING = 0,
    CU_PROCESS_STATE_LOCKED = 1,
    CU_PROCESS_STATE_CHECKPOINTED = 2,
    CU_PROCESS_STATE_FAILED = 3,
} CUprocessState;

typedef struct CUcheckpointLockArgs {
    unsigned int timeoutMs; /* 0: none */
    unsigned int reserved0;
    cuuint64_t reserved1[7];
} CUcheckpointLockArgs;

typedef struct CUcheckpointCheckpointArgs {
    cuuint64_t reserved[8];
} CUcheckpointCheckpointArgs;

typedef struct CUcheckpointUnlockArgs {
    cuuint64_t reserved[8];
} CUcheckpointUnlockArgs;

/* Which GPU takes the place of which. */
typedef struct CUcheckpointGpuPair {
    CUuuid oldUuid, newUuid;
} CUcheckpointGpuPair;

/* Up to 12.9 all of it is reserved. */
typedef struct CUcheckpointRestoreArgs {
    CUcheckpointGpuPair *gpuPairs;
    unsigned int gpuPairsCount;
    char reserved[52 - sizeof(CUcheckpointGpuPair *)];
    cuuint64_t reserved1;
} CUcheckpointRestoreArgs;

#endif
