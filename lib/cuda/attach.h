/*
 * The share to which this process is attached: found beside the driver's library and opened once.
 */
#ifndef DIVVY_CUDA_ATTACH_H
#define DIVVY_CUDA_ATTACH_H

#include "abi/cuda/types.h"
#include "cuda/event.h"
#include "share/share.h"

/* Opens the share unless it is open. CUDA_ERROR_SYSTEM_NOT_READY if its pages are missing, damaged
 * or of another version: nothing may then be allocated. The next call tries again. */
CUresult attach_share(void);

/* The share; NULL while it is not open. */
dv_share *attached_share(void);

/* The share has been opened. attached_share tells it afterwards. */
EVENT(attached, (const dv_share *share));

#endif
