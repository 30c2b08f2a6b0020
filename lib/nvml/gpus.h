/*
 * The GPUs of the share, as NVML's functions see them.
 *
 * Handles are the driver's own, so that a program may carry one to a function that we do not touch.
 * Nothing here remembers a handle: a handle is recognised by the UUID that the driver gives for it,
 * which stays right over nvmlShutdown and a second nvmlInit. No lock is held over a driver call.
 */
#ifndef DIVVY_NVML_GPUS_H
#define DIVVY_NVML_GPUS_H

#include "abi/generated/nvml_functions.h"
#include "share/share.h"
#include "substitute/substitute.h"

/* Opens the share beside the driver's library, once; later calls do nothing. NVML_ERROR_UNKNOWN if
 * its pages are missing or bad: the reason goes to the log, and the next call tries again. */
DV_HIDDEN nvmlReturn_t gpus_open(void);

/* What a handle is to the share. Of a share on MIG instances these instances are GPU_SHARED, and so
 * are the GPUs on which they lie: the driver shows a container that was given one instance its GPU
 * too. Other instances on them are GPU_OUTSIDE. */
enum gpu_relation {
    GPU_OUTSIDE, /* no GPU of the share: answered as an invalid handle */
    GPU_SHARED,  /* a GPU of the share: what the share allows is shown in the driver's place */
    GPU_PART,    /* a MIG instance of a GPU of the share: the driver's figures are its own */
};

/* One device of the share: its index in the config page, which dv_share_device and dv_usage take.
 * For a GPU with several instances of the share it is the first. */
struct gpu {
    dv_share *share;
    unsigned device;
    bool instance; /* the handle is that of a MIG instance */
};

/* Tells what `handle` is; fills *gpu for GPU_SHARED and GPU_PART. */
DV_HIDDEN enum gpu_relation gpu_find(nvmlDevice_t handle, struct gpu *gpu);

/* Number of GPUs in the share, at most DV_PAGE_DEVICES; 0 while the share is not open. Instances on
 * one GPU count as one. */
DV_HIDDEN unsigned gpus_count(void);

/* The driver's handle of the GPU at `position` of the share, counted in the driver's own order,
 * which is the order of PCI bus addresses. NVML_ERROR_INVALID_ARGUMENT past the end; else the
 * driver's answer, for example that the GPU is lost. */
DV_HIDDEN nvmlReturn_t gpus_handle(unsigned position, nvmlDevice_t *handle);

/* The answer to a structure of a version that we do not know. The driver looks at versions only once
 * it is initialised. */
DV_HIDDEN nvmlReturn_t gpus_unknown_version(void);

/* The position of a GPU of the share: the inverse of gpus_handle. */
DV_HIDDEN nvmlReturn_t gpus_position(const struct gpu *gpu, unsigned *position);

/* Whether the share is on MIG instances. */
DV_HIDDEN bool gpus_are_instances(void);

#endif
